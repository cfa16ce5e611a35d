"""The verb of live runs: the same scenario on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.failures import failures, needing
from cli.options import Device, Dtype, NoPlots, Scenarios, Sets, Threads, Trace, TraceWindow, folder


def replay(
    scenarios: Scenarios,
    set_: Sets = [],  # noqa: B006
    out: Annotated[Path | None, folder("runs/NAME.live")] = None,
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
    with failures(), needing("executor", "torch", "transformers", "PIL"):
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
