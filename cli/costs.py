"""The verbs of costs: time a device, fit a profile to timings, price an iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.failures import failures, needing
from cli.options import Device, Dtype, Threads


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
    with failures(), needing("executor", "torch", "transformers", "PIL"):
        from executor.calibrate_command import CalibrateCommand

        code = CalibrateCommand(model, device, dtype, clock, out, repeats, quick, threads)()
    raise typer.Exit(code)


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
    with failures():
        from sim.fit_command import fit_command

        fit_command(source, out)


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
    with failures():
        from sim.price_command import price_command

        price_command(profile, encode, prefill, decode, as_json=json, corrected=not uncorrected)
