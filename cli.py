"""The command `tandem`: simulate scenarios, list the policies, print the scenarios' JSON schema."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer

INTERRUPTED = 130

app = typer.Typer(
    help="Simulates the serving of multimodal language models under scheduling policies.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Scenarios = Annotated[list[Path], typer.Argument(metavar="SCENARIO", hidden=True)]
Sets = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="PATH=VALUE,...",
        help="Change a value first. Several values, separated by commas, are variants to compare; "
        "several --set multiply.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder to write; default: runs/NAME.", show_default=False)
]
NoPlots = Annotated[bool, typer.Option("--no-plots", help="Write tables only.", show_default=False)]


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


@app.command()
def run(scenarios: Scenarios, set_: Sets = [], out: Out = None, no_plots: NoPlots = False) -> None:  # noqa: B006
    """Simulate scenarios and show their latencies side by side.

    SCENARIO is a YAML file; of several, each is a variant. Tables, a summary and plots go into a folder. For example:

    \b
      tandem run scenarios/bursty_images.yaml
      tandem run scenarios/bursty_images.yaml --set policy.kind=fcfs,footprint --set engine.num_kv_blocks=2000,4000

    \b
    Exit codes:
      0    every run went to its end, even if requests were rejected or failed out of memory
      2    wrong input
      3    a run stalled, or ended out of memory (simulation.out_of_memory: end_run)
      130  interrupted
    """
    with _failures():
        from sim.command import RunCommand

        code = RunCommand(scenarios, set_, out, plots=not no_plots)()
    raise typer.Exit(code)


@app.command()
def policies() -> None:
    """List the scheduling policies, with sources."""
    from policies import POLICIES
    from sim.policy_list import policy_list
    from sim.tables import new_console

    typer.echo(policy_list(POLICIES, new_console().width))


@app.command()
def schema() -> None:
    """Print the JSON schema of scenarios, for editors."""
    import json

    from sim import Scenario

    typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))


@contextmanager
def _failures() -> Iterator[None]:
    """Wrong input is one line and exit code 2; an interrupt, Ctrl-C or SIGTERM, is 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from workloads.errors import InputError

        try:
            yield
        except InputError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
