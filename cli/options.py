"""Options that several verbs have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def folder(default: str) -> Any:
    """The option for a folder to write."""
    return typer.Option(metavar="DIR", help=f"Folder to write; default: {default}.", show_default=False)


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
Out = Annotated[Path | None, folder("runs/NAME")]
Device = Annotated[str, typer.Option(metavar="cpu|cuda", help="Where to run.")]
Dtype = Annotated[
    str | None,
    typer.Option(
        metavar="DTYPE",
        help="float32, float64, bfloat16 or float16. Default: bfloat16 on CUDA, float32 on CPU.",
        show_default=False,
    ),
]
Threads = Annotated[int, typer.Option(metavar="N", help="Threads of the CPU; more than there are idle cores is slow.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Processes for several simulations; default: one a core.", show_default=False
    ),
]
Trace = Annotated[bool, typer.Option("--trace", help="Write trace.json.gz, a timeline for https://ui.perfetto.dev.")]
TraceWindow = Annotated[
    str | None,
    typer.Option(
        metavar="START:END",
        help="Show these seconds in it, as 10:20, :20 or 10:; at most 100,000 iterations.",
        show_default=False,
    ),
]
NoPlots = Annotated[bool, typer.Option("--no-plots", help="Write tables only.", show_default=False)]
