"""The command `tandem`: simulate scenarios, list the policies, print the scenarios' JSON schema."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

try:
    import typer
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr)
    sys.exit(130)

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
    with _failures():
        from policies import POLICIES
        from sim.policy_list import policy_list
        from sim.printing import printing
        from sim.tables import new_console

        with printing():
            typer.echo(policy_list(POLICIES, new_console().width))


@app.command()
def schema() -> None:
    """Print the JSON schema of scenarios, for editors."""
    with _failures():
        import json

        from sim import Scenario
        from sim.printing import printing

        with printing():
            typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))


@contextmanager
def _failures() -> Iterator[None]:
    """Wrong input is one line and exit code 2; an interrupt, Ctrl-C or SIGTERM, is 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        raise _interrupted() from None
    except Exception as error:
        if _by_interrupt(error):
            raise _interrupted() from None
        from sim.printing import one_line
        from workloads.errors import InputError

        if not isinstance(error, InputError):
            raise
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        raise typer.Exit(2) from None


def _interrupted() -> typer.Exit:
    print("interrupted", file=sys.stderr)
    return typer.Exit(INTERRUPTED)


def _by_interrupt(error: BaseException | None) -> bool:
    """Whether an interrupt is behind it: imports and pydantic's schemas turn one into errors of their own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        if type(error).__name__ == "SchemaError" and "KeyboardInterrupt" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return error is not None
