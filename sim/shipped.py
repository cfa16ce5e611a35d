"""Makes every shipped profile of published timings again, and their page: `python -m sim.shipped`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sim.files import check_writable
from sim.fit import make_profile, write_profile
from sim.profile_page import PAGE, write_page
from sim.profiles import PROFILES
from sim.silicon import Silicon
from workloads.errors import InputError

SYSTEMS = ("h200_sxm", "h100_sxm", "b200_sxm", "l40s")
MODELS = ("qwen2-vl-2b", "qwen2-vl-7b", "qwen3-vl-8b")
SHIPPED = (
    *(Silicon(system, "sglang", model, 1) for system in SYSTEMS for model in MODELS),
    *(Silicon("h200_sxm", "sglang", model, ranks) for model in MODELS[1:] for ranks in (2, 4)),
    *(Silicon("h200_sxm", "vllm", model, 1) for model in MODELS),
)


def path_of(silicon: Silicon, folder: Path = PROFILES) -> Path:
    return folder / f"{silicon.name}.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sim.shipped", description=__doc__)
    parser.add_argument("--out", type=Path, default=PROFILES, help="default: scenarios/profiles")
    out = parser.parse_args().out
    try:
        for silicon in SHIPPED:
            path = path_of(silicon, out)
            check_writable(path)
            profile = make_profile(silicon.source)
            write_profile(profile, path)
            print(f"{path}: withheld, in percent: {profile.held_out.mape.model_dump()}", flush=True)
        if out == PROFILES:
            write_page(PAGE)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
