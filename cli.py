"""The command `tandem`: simulate scenarios, compare with live runs, fit profiles, list policies, print the schema."""

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
    with _failures():
        from sim.command import RunCommand
        from sim.perfetto_output import asked_for

        timeline = asked_for(trace, trace_window)
        plots = not no_plots
        code = RunCommand(scenarios, set_, out, plots, jobs=jobs, uncertainty=uncertainty, timeline=timeline)()
    raise typer.Exit(code)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.yaml", help="What is varied, and how.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; default: runs/NAME.sweep.", show_default=False)
    ] = None,
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
    with _failures(), _extra("dask", "distributed"):
        from sim.sweep_command import SweepCommand

        code = SweepCommand(file, out, jobs=jobs, dask=dask, tables=tables, plots=not no_plots)()
    raise typer.Exit(code)


@app.command()
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
    with _failures():
        from sim.compare_pairs import pairs

        found = pairs(first, second)
        if found.live:
            from sim.compare_command import CompareCommand

            code = CompareCommand(found, profile, plots=not no_plots)()
        else:
            from sim.compare_pair_command import PairCommand

            code = PairCommand(found, profile, plots=not no_plots)()
    raise typer.Exit(code)


@app.command()
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
    with _failures():
        from sim.report_command import ReportCommand

        code = ReportCommand(runs, out)()
    raise typer.Exit(code)


@app.command()
def calibrate(
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="tiny, small, qwen2-vl-2b or qwen2-vl-7b (random weights), a folder or a hub id.",
            show_default=False,
        ),
    ],
    device: Device = "cpu",
    dtype: Dtype = None,
    threads: Threads = 1,
    clock: Annotated[
        str | None,
        typer.Option(
            metavar="CLOCK",
            help="cuda (events), wall or thread_time. Default: cuda on CUDA, thread_time on CPU.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Default: runs/calibration/MODEL-DEVICE.csv.", show_default=False),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(metavar="N", help="How often each shape is timed.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few shapes, well under a minute.")] = False,
) -> None:
    """Time a model on a device: encoder, prefill, decode, mixed batches, host.

    The timings go into a CSV that says what was timed where, for `tandem fit`. For example:

    \b
      tandem calibrate --model small --out small.csv
      tandem fit small.csv

    An interrupt (exit code 130) writes what has been timed so far, marked partial.
    """
    with _failures(), _extra("executor", "torch", "transformers", "PIL"):
        from executor.calibrate_command import CalibrateCommand

        code = CalibrateCommand(model, device, dtype, clock, out, repeats, quick, threads)()
    raise typer.Exit(code)


@app.command()
def fit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A CSV of timings, as calibrate writes them, or aiconfigurator:SYSTEM/BACKEND/MODEL[-tpN].",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PROFILE.json",
            help="Default: beside the CSV, ending in .json; of published tables, in runs/profiles.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fit the cost model to timings: timings in, profile out.

    Shows how far it is off on timings that were withheld. The profile goes into a scenario as `profile: PROFILE.json`,
    or by its name if it lies in scenarios/profiles. For example:

    \b
      tandem fit small.csv
      tandem fit aiconfigurator:h100_sxm/vllm/qwen2-vl-7b-tp2 --out h100.json

    Published tables: systems h200_sxm, h100_sxm, b200_sxm and l40s, backends sglang, vllm and trtllm, models
    qwen2-vl-2b, qwen2-vl-7b, qwen2.5-vl-7b and qwen3-vl-8b.
    """
    with _failures():
        from sim.fit_command import fit_command

        fit_command(source, out)


@app.command()
def price(
    profile: Annotated[
        str,
        typer.Argument(metavar="PROFILE", help="A name, such as h200/qwen3-vl-8b, or a JSON file.", show_default=False),
    ],
    encode: Annotated[
        str | None,
        typer.Option(metavar="NxTOKENS,...", help="Images, and encoder tokens of each.", show_default=False),
    ] = None,
    prefill: Annotated[
        str | None,
        typer.Option(metavar="TOKENS[@CACHED],...", help="Prefill chunks, and what is cached.", show_default=False),
    ] = None,
    decode: Annotated[
        str | None, typer.Option(metavar="N@CONTEXT", help="Decodes, and the context of each.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    uncorrected: Annotated[
        bool, typer.Option("--uncorrected", help="Kernel timings alone, without the profile's corrections.")
    ] = False,
) -> None:
    """Price one iteration part by part, beside the floor that the device's peaks set.

    Says what lies outside the range of the profile's timings. For example:

    \b
      tandem price h200/qwen3-vl-8b --encode 4x3520
      tandem price h200/qwen2-vl-7b-sglang-tp2 --prefill 2048@4096,512 --decode 32@5000 --json
    """
    with _failures():
        from sim.price_command import price_command

        price_command(profile, encode, prefill, decode, as_json=json, corrected=not uncorrected)


@app.command()
def replay(
    scenarios: Scenarios,
    set_: Sets = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; default: runs/NAME.live.", show_default=False)
    ] = None,
    no_plots: NoPlots = False,
    device: Device = "cpu",
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="tiny, small, qwen2-vl-2b or qwen2-vl-7b (random weights), a folder or a hub id; default: the "
            "scenario's.",
            show_default=False,
        ),
    ] = None,
    dtype: Dtype = None,
    threads: Threads = 1,
    clock: Annotated[
        str | None,
        typer.Option(
            metavar="CLOCK",
            help="cuda (events), wall, thread_time, or model: the cost model tells the time, and every run is the "
            "same. Default: cuda on CUDA, thread_time on CPU, as of calibrate; wall with --wall.",
            show_default=False,
        ),
    ] = None,
    wall: Annotated[
        bool, typer.Option("--wall", help="Wait for arrivals in real time; else idle time is skipped.")
    ] = False,
    temperature: Annotated[float, typer.Option(help="Sample at this temperature; 0 takes the likeliest.")] = 0.0,
    logprobs: Annotated[bool, typer.Option("--logprobs", help="Write the tokens' log-probabilities too.")] = False,
    encoder_storage: Annotated[
        str, typer.Option(metavar="rows|per_item", help="One tensor of rows for all encoder outputs, or one an item.")
    ] = "rows",
    encoder_in_graph_pool: Annotated[
        bool, typer.Option("--encoder-in-graph-pool", help="The encoder allocates from the CUDA graphs' memory.")
    ] = False,
    no_graphs: Annotated[bool, typer.Option("--no-graphs", help="No CUDA graphs.")] = False,
    pad_queries: Annotated[
        int, typer.Option(metavar="TOKENS", help="Pad mixed batches to multiples of so many tokens, and capture them.")
    ] = 0,
    images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Picture files in place of generated pixels.", show_default=False)
    ] = None,
    text: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Words for the prompts, through a real model's tokenizer.", show_default=False
        ),
    ] = None,
    calibrate_every: Annotated[
        int,
        typer.Option(metavar="N", help="Time one shape after every N iterations, off the clock: calibration.csv."),
    ] = 0,
    trace: Trace = False,
    trace_window: TraceWindow = None,
) -> None:
    """Run scenarios for real: the same policies, with a device in the place of the cost model.

    Writes what `tandem run` writes, and the plans and tokens. For example:

    \b
      tandem replay scenarios/tiny_live.yaml
      tandem replay scenarios/tiny_live.yaml --clock model --set policy.kind=fcfs,footprint

    Exit codes are those of `tandem run`.
    """
    with _failures(), _extra("executor", "torch", "transformers", "PIL"):
        from executor.options import Options
        from executor.replay_command import ReplayCommand
        from sim.perfetto_output import asked_for

        options = Options(
            device=device,
            model=model,
            dtype=dtype,
            threads=threads,
            clock=clock,
            real_time=wall,
            temperature=temperature,
            logprobs=logprobs,
            encoder_storage=encoder_storage,
            encoder_in_graph_pool=encoder_in_graph_pool,
            graphs=not no_graphs,
            pad_queries=pad_queries,
            images=images,
            text=text,
            calibrate_every=calibrate_every,
        )
        code = ReplayCommand(scenarios, set_, out, not no_plots, options, asked_for(trace, trace_window))()
    raise typer.Exit(code)


@app.command(name="import")
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
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; default: runs/FILE.live.", show_default=False)
    ] = None,
) -> None:
    """Turn a benchmark of a real server into a measured run, for `tandem compare`.

    For example:

    \b
      tandem import vllm-bench result.json
      tandem compare runs/mine runs/result.live
    """
    with _failures():
        from sim.import_command import import_command

        import_command(tool, file, out)


@app.command()
def export(
    tool: Annotated[str, typer.Argument(metavar="aiperf", help="Whose files to write.")],
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of any run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; default: RUN/aiperf.", show_default=False)
    ] = None,
) -> None:
    """Write a run as a benchmark would have measured it: aiperf's CSV and JSONL, with its tags."""
    with _failures():
        from sim.export_command import export_command

        export_command(tool, run, out)


@app.command()
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
    with _failures():
        from sim.published_command import PublishedCommand

        PublishedCommand(serving, out, jobs, refit=refit)()


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
def _extra(extra: str, *packages: str) -> Iterator[None]:
    """What is done here needs packages that simulating does not."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        from workloads.errors import InputError

        raise InputError(f"{error.name} is not installed: pip install -e '.[{extra}]' in the clone") from None


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
