"""The verbs of simulations: run them, sweep over them, compare them and report on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.failures import failures, needing
from cli.options import Jobs, NoPlots, Out, Scenarios, Sets, Trace, TraceWindow, folder


def run(
    scenarios: Scenarios,
    set_: Sets = [],  # noqa: B006
    out: Out = None,
    no_plots: NoPlots = False,
    jobs: Jobs = None,
    uncertainty: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=10_000,
            metavar="N",
            help="Run N times, each with another seed and another draw of what the profile leaves uncertain.",
            show_default=False,
        ),
    ] = None,
    trace: Trace = False,
    trace_window: TraceWindow = None,
) -> None:
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
    with failures():
        from sim.command import RunCommand
        from sim.perfetto_output import asked_for

        timeline = asked_for(trace, trace_window)
        plots = not no_plots
        code = RunCommand(scenarios, set_, out, plots, jobs=jobs, uncertainty=uncertainty, timeline=timeline)()
    raise typer.Exit(code)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.yaml", help="What is varied, and how.", show_default=False)],
    out: Annotated[Path | None, folder("runs/NAME.sweep")] = None,
    jobs: Jobs = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on this Dask cluster, as tcp://HOST:8786.", show_default=False),
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Write what `tandem run` writes for every point, too.", show_default=False)
    ] = False,
    no_plots: NoPlots = False,
) -> None:
    """Simulate many settings of a scenario, and say which is the best.

    Every result is kept as it comes; the same command goes on after an interrupt, and simulates nothing twice. For
    example:

    \b
      tandem sweep scenarios/sweeps/budgets.yaml
      tandem sweep scenarios/sweeps/knee.yaml --jobs 8

    \b
    Exit codes:
      0    every point was simulated, even if some stalled or failed
      2    wrong input
      130  interrupted
    """
    with failures(), needing("dask", "distributed"):
        from sim.sweep_command import SweepCommand

        code = SweepCommand(file, out, jobs=jobs, dask=dask, tables=tables, plots=not no_plots)()
    raise typer.Exit(code)


def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a simulated run.", show_default=False)],
    second: Annotated[
        Path,
        typer.Argument(
            metavar="OTHER", help="Folder of a live, an imported or another simulated run.", show_default=False
        ),
    ],
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Price the plans of a live run by this; default: the scenario's.",
            show_default=False,
        ),
    ] = None,
    no_plots: NoPlots = False,
) -> None:
    """Compare two runs: a simulation with a live run, with an imported one, or with another simulation.

    If both folders hold variants, those of the same names are compared. Writes compare.json and plots into OTHER. A
    live run, of `tandem replay`, must be of the same scenario; it is checked against its twin, the cost model and the
    simulation. For example:

    \b
      tandem compare runs/tiny_live runs/tiny_live.live
      tandem compare runs/tiny_live runs/tiny_live.live --profile profiles/cpu.json
      tandem compare runs/bursty_images/fcfs runs/bursty_images/footprint

    \b
    Exit codes:
      0    compared; of a live run, the twin is identical, and under `--clock model` the simulation too
      1    a difference in what must be identical; the first is printed
      2    wrong input
    """
    with failures():
        from sim.compare_pairs import pairs

        found = pairs(first, second)
        if found.live:
            from sim.compare_command import CompareCommand

            code = CompareCommand(found, profile, plots=not no_plots)()
        else:
            from sim.compare_pair_command import PairCommand

            code = PairCommand(found, profile, plots=not no_plots)()
    raise typer.Exit(code)


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: report.html in the first folder.", show_default=False)
    ] = None,
) -> None:
    """Make one page of runs: objectives, latencies, a timeline to zoom into, and why a token was late.

    RUN is a folder that `tandem run` or `tandem replay` wrote, of one run or of variants. The page needs no network.
    For example:

    \b
      tandem report runs/bursty_images
      tandem report runs/tiny_live runs/tiny_live.live --out report.html
    """
    with failures():
        from sim.report_command import ReportCommand

        code = ReportCommand(runs, out)()
    raise typer.Exit(code)
