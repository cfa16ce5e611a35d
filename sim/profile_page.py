"""Makes docs/profiles.md: `python -m sim.profile_page` puts the shipped profiles' errors under the text."""

from __future__ import annotations

import argparse
from pathlib import Path

from sim.files import writing
from sim.profiles import PROFILES, REPOSITORY, Profile, load_profile
from sim.sheet import markdown

PAGE = REPOSITORY / "docs" / "profiles.md"
BEGIN, END = "<!-- errors -->", "<!-- /errors -->"
STAGES = ("encoder", "prefill", "decode", "mixed")


def write_page(page: Path) -> None:
    """Everything between the two marks is made anew; the text around them is written by hand."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    with writing(page):
        page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def table(folder: Path = PROFILES) -> str:
    """A row for each profile that lies there."""
    names = sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("*/*.json"))
    headings = ["profile", *(f"{stage} (%)" for stage in STAGES), "tables for", "left beside the weights (GB)"]
    return markdown(headings, [[f"`{name}`", *_cells(load_profile(name))] for name in names])


def _cells(profile: Profile) -> list[str]:
    errors = profile.held_out.mape
    instead = [part for part in ("encode", "gemm") if getattr(profile.tables, part)]
    left = profile.device.memory.value - profile.memory.weights.value
    return [*(f"{getattr(errors, stage):.2f}" for stage in STAGES), ", ".join(instead) or "none", f"{left / 1e9:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sim.profile_page", description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="default: docs/profiles.md")
    out = parser.parse_args().out
    write_page(out)
    print(f"{out}: {table().count(chr(10)) - 1} profiles")


if __name__ == "__main__":
    main()
