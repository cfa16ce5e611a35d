"""The verbs of what others measured and published, and of files in their forms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.failures import failures
from cli.options import Jobs, folder


def import_(
    tool: Annotated[str, typer.Argument(metavar="aiperf|vllm-bench|guidellm", help="What wrote the file.")],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="profile_export.jsonl of aiperf, the JSON of `vllm bench serve --save-result --save-detailed`, "
            "or of `guidellm run`.",
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, folder("runs/FILE.live")] = None,
) -> None:
    """Turn a benchmark of a real server into a measured run, for `tandem compare`.

    For example:

    \b
      tandem import vllm-bench result.json
      tandem compare runs/mine runs/result.live
    """
    with failures():
        from sim.import_command import import_command

        import_command(tool, file, out)


def export(
    tool: Annotated[str, typer.Argument(metavar="aiperf", help="Whose files to write.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of any run.", show_default=False)],
    out: Annotated[Path | None, folder("RUN/aiperf")] = None,
) -> None:
    """Write a run as a benchmark would have measured it: aiperf's CSV and JSONL, with its tags."""
    with failures():
        from sim.export_command import export_command

        export_command(tool, run, out)


def published(
    serving: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Only predict the rows of this file, in the form of scenarios/published/h200_qwen3vl8b_serving.csv.",
            show_default=False,
        ),
    ] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Fit the servers' front ends again, and write them into their scenarios.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="PAGE.md", help="Default: docs/published.md.", show_default=False)
    ] = None,
    jobs: Jobs = None,
) -> None:
    """Simulate what others published, and lay both beside each other.

    Prints measured and simulated figures of real servers and of an engine before and after budgets, with errors and
    intervals, and writes them as a page with plots over what is not stated. For example:

    \b
      tandem published
      tandem published --serving rows.csv
    """
    with failures():
        from sim.published_command import PublishedCommand

        PublishedCommand(serving, out, jobs, refit=refit)()
