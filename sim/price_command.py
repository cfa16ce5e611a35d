"""One `tandem price`: an iteration given by options, priced part by part, as a table or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sim.price import PARTS, Price, Shape, price
from sim.printing import printing, short
from sim.profiles import Profile, from_here, load_profile
from sim.tables import new_console, new_table, say
from workloads.errors import InputError

MOST = 2**31  # of any number in an option: far above what any device runs
FORMS = {
    "--encode": (r"(?:(\d+)x)?(\d+)", "4x4096 (images, encoder tokens of each)"),
    "--prefill": (r"(\d+)(?:@(\d+))?", "8192@512 (tokens, those cached before)"),
    "--decode": (r"(\d+)@(\d+)", "32@5000 (decodes, context of each)"),
}


def price_command(
    profile: str, encode: str | None, prefill: str | None, decode: str | None, *, as_json: bool, corrected: bool
) -> None:
    """Raises InputError for wrong input."""
    shape = _shape(encode, prefill, decode)
    loaded = load_profile(from_here(profile))
    found = price(loaded, shape, corrected)
    with printing():
        if as_json:
            print(json.dumps(_content(profile, found, shape, corrected), indent=2))
        else:
            _report(loaded, found, corrected)


def _shape(encode: str | None, prefill: str | None, decode: str | None) -> Shape:
    images = [(_whole("--encode", n or "1"), _whole("--encode", s)) for n, s in _each("--encode", encode)]
    chunks = [(_whole("--prefill", q), _whole("--prefill", c or "0", least=0)) for q, c in _each("--prefill", prefill)]
    decodes = [(_whole("--decode", b), _whole("--decode", context)) for b, context in _each("--decode", decode)]
    if len(decodes) > 1:
        raise InputError("--decode: is given once; what contexts differ by does not matter, give their mean")
    if not (images or chunks or decodes):
        raise InputError(
            f"nothing to price: say {', '.join(f'{option} {like}' for option, (_, like) in FORMS.items())}"
        )
    return Shape(images, chunks, *(decodes[0] if decodes else ()))


def _each(option: str, text: str | None) -> Iterator[tuple[str, str]]:
    """What is separated by commas, taken apart."""
    form, like = FORMS[option]
    for part in text.split(",") if text is not None else []:
        found = re.fullmatch(form, part.strip(), re.ASCII)
        if not found:
            raise InputError(f"{option}: {short(part)!r} is not like {like}")
        yield found[1], found[2]


def _whole(option: str, digits: str, least: int = 1) -> int:
    if len(digits) > len(str(MOST)) or not least <= int(digits) <= MOST:
        raise InputError(f"{option}: {short(digits)} is not from {least} to {MOST:,}")
    return int(digits)


def _content(name: str, found: Price, shape: Shape, corrected: bool) -> dict[str, Any]:
    efficiency = {part: _share(floor, found.parts[part]) for part, floor in (found.floors or {}).items()}
    return {
        "profile": name,
        "corrected": corrected,
        "shape": shape._asdict(),
        "total_ms": found.total,
        **{f"{part}_ms": ms for part, ms in found.parts.items()},
        "floor": None if found.floors is None else {"total": found.floor, **found.floors},
        "efficiency": None
        if found.floors is None
        else {"total": _share(found.floor or 0.0, found.total), **efficiency},
        "outside": found.outside,
    }


def _share(floor: float, ms: float) -> float | None:
    return floor / ms if ms else None


def _report(profile: Profile, found: Price, corrected: bool) -> None:
    console, table = new_console(), new_table()
    for heading in ("part", "time (ms)", "roofline floor (ms)", "efficiency (%)"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for part in PARTS:
        if found.parts[part]:
            table.add_row(part.replace("_", " "), *_cells(found.parts[part], (found.floors or {}).get(part)))
    table.add_row("total", *_cells(found.total, found.floor))
    say(console, f"{profile.model} on {profile.device.name}: {profile.label}")
    console.print(table)
    for place in found.outside:
        say(console, f"outside the range of the timings: {place}")
    if not corrected:
        say(console, "kernel timings alone, without what the profile has under corrections")


def _cells(ms: float, floor: float | None) -> list[str]:
    if floor is None:
        return [f"{ms:,.3f}", "", ""]
    return [f"{ms:,.3f}", f"{floor:,.3f}", f"{100 * floor / ms:.1f}"]
