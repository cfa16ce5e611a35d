"""One `tandem fit`: a CSV of timings becomes a profile, with its errors on timings that were withheld."""

from __future__ import annotations

from pathlib import Path

from sim.files import check_writable, usable
from sim.printing import printing
from sim.profiles import Profile
from sim.tables import new_console, new_table, say
from workloads.errors import InputError

NEEDS_SCIPY = "fitting needs scipy: pip install -e '.[profiles]'"


def fit_command(csv: Path, out: Path | None) -> None:
    """Raises InputError for wrong input, or where scipy is not installed."""
    try:
        from sim.fit import make_profile, write_profile
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "scipy":
            raise
        raise InputError(NEEDS_SCIPY) from None
    path = usable(out) if out else _beside(usable(csv))
    check_writable(path)
    profile = make_profile(usable(csv))
    write_profile(profile, path)
    with printing():
        _report(profile, path)


def _beside(csv: Path) -> Path:
    if not csv.is_file():
        raise InputError(f"{csv}: is no file of timings")
    path = csv.with_suffix(".json")
    if path == csv:
        raise InputError(f"{csv}: the profile would take the timings' place; name another with --out")
    return path


def _report(profile: Profile, path: Path) -> None:
    console, table = new_console(), new_table()
    for heading in ("stage", "mean abs. error\nwithheld (%)", "error of the sum\nfitted (%)"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    mape, bias = profile.held_out.mape.model_dump(), profile.held_out.bias.model_dump()
    for stage in mape:
        table.add_row(stage, f"{mape[stage]:.2f}", f"{bias[stage]:+.2f}")
    say(console, f"{profile.model} on {profile.device.name}: {profile.label}")
    console.print(table)
    say(console, f"{path}; to run a scenario with it: --set profile={path.resolve()}")
