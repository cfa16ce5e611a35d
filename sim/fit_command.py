"""One `tandem fit`: timings become a profile, with its errors on timings that were withheld."""

from __future__ import annotations

from pathlib import Path

from sim.files import check_writable, usable
from sim.printing import printing
from sim.profiles import Profile
from sim.tables import new_console, new_table, say
from workloads.errors import InputError

NEEDS_SCIPY = "fitting needs scipy: pip install -e '.[profiles]'"
FITTED = Path("runs", "profiles")


def fit_command(source: str, out: Path | None) -> None:
    """Raises InputError for wrong input, or where scipy is not installed."""
    try:
        from sim.fit import make_profile, write_profile
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "scipy":
            raise
        raise InputError(NEEDS_SCIPY) from None
    timings = str(usable(source))
    path = usable(out) if out else _default(source)
    check_writable(path)
    profile = make_profile(timings)
    write_profile(profile, path)
    with printing():
        _report(profile, path)


def _default(source: str) -> Path:
    """Beside a CSV; of published tables, in a folder of its own."""
    from sim.silicon import PREFIX, Silicon

    if source.startswith(PREFIX):
        return FITTED / f"{Silicon.parse(source).name}.json"
    return _beside(Path(source))


def _beside(csv: Path) -> Path:
    if not csv.is_file():
        raise InputError(f"{csv}: is no file of timings")
    path = csv.with_suffix(".json")
    if path == csv:
        raise InputError(f"{csv}: the profile would take the timings' place; name another with --out")
    return path


def _report(profile: Profile, path: Path) -> None:
    console, table = new_console(), new_table()
    for heading in ("stage", "mean abs. error\nwithheld (%)", "error of the sum (%)"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    mape, bias = profile.held_out.mape.model_dump(), profile.held_out.bias.model_dump()
    for stage in mape:
        table.add_row(stage, f"{mape[stage]:.2f}", f"{bias[stage]:+.2f}")
    say(console, f"{profile.model} on {profile.device.name}: {profile.label}")
    console.print(table)
    for part in ("encode", "gemm"):
        if errors := getattr(profile.held_out, part):
            chosen = "table" if getattr(profile.tables, part) else "formula"
            say(console, f"{part}: the {chosen}; withheld, formula {errors.formula:.2f} %, table {errors.table:.2f} %")
    say(console, f"{path}; to run a scenario with it: --set profile={path.resolve()}")
