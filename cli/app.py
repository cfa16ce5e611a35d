"""All verbs, in the order in which `tandem --help` lists them."""

from __future__ import annotations

from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from cli.costs import calibrate, fit, price
from cli.lists import policies, schema
from cli.live import replay
from cli.others import export, import_, published
from cli.simulation import compare, report, run, sweep

VERBS = (run, sweep, compare, report, calibrate, fit, price, replay, import_, export, published, policies, schema)

app = typer.Typer(
    help="Simulates the serving of multimodal language models under scheduling policies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tandem {installed_version('tandem-serving')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Simulates the serving of multimodal language models under scheduling policies."""


for verb in VERBS:
    app.command(name=verb.__name__.rstrip("_"))(verb)
