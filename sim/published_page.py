"""The page docs/published.md: what others measured beside what is simulated, with what does not agree and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from policies.units import in_bytes
from sim.claims import Claim
from sim.memory_replay import MEMORY_METRICS
from sim.policy_text import wrapped
from sim.profiles import REPOSITORY
from sim.published import Published
from sim.published_table import number, percent
from sim.sensitivity import Setting, crossings
from sim.serving_stages import explained
from sim.serving_table import Prediction, fidelity
from sim.sheet import Sheet, in_page

VERDICTS = {True: "yes", False: "no", None: "-"}
TEXTS = REPOSITORY / "docs" / "published"


class Scene(NamedTuple):
    """One published scenario: its figures as it stands, and with other values of what is not stated."""

    name: str
    published: Published
    claims: Sequence[Claim]
    settings: Sequence[Setting] = ()


def claims_sheet(scenes: Sequence[Scene], title: str) -> Sheet:
    """A line a figure."""
    headings = ["scenario", "figure", "of", "note", "published", "simulated", "interval", "agrees"]
    rows = [[f"`{scene.name}`", *_cells(claim)] for scene in scenes for claim in scene.claims]
    return Sheet(title, headings, rows, words=4)


def _cells(claim: Claim) -> list[str]:
    figure = claim.figure
    of = f"`{figure.policy}`" if figure.value is not None else "change"
    told = figure.change_words or _written(claim, claim.published or 0.0)
    metric = f"`{figure.metric}`"
    if not claim.simulated:
        return [metric, of, figure.note, told, "not simulated", "-", "-"]
    return [metric, of, figure.note, told, _written(claim, claim.mean), _interval(claim), VERDICTS[claim.agrees]]


def _written(claim: Claim, value: float) -> str:
    if claim.figure.value is None:
        return percent(value)
    return in_bytes(round(value)) if claim.figure.metric.endswith("_bytes") else number(value)


def _interval(claim: Claim) -> str:
    if not claim.half_width:
        return "-"
    return f"{_written(claim, claim.mean - claim.half_width)} to {_written(claim, claim.mean + claim.half_width)}"


def conditions(scene: Scene) -> Sheet:
    """Of each figure that does not agree: where along the first knob it would, for each combination of the others."""
    first, *rest = scene.published.unstated
    lines = list(dict.fromkeys(setting.values[1:] for setting in scene.settings))
    rows = []
    for index, claim in enumerate(scene.claims):
        if claim.agrees is False and claim.published is not None:
            name, of, *_ = _cells(claim)
            pairs = crossings(scene.settings, index)
            cells = [_along(pairs, line) for line in lines]
            rows.append([name, of, _written(claim, claim.published), *cells, _range(scene, index)])
    title = f"{first.what}: between which values the published number lies"
    if rest:
        title += f", with {' and '.join(knob.what for knob in rest)} of"
    headings = ["figure", "of", "published", *(_values(line) for line in lines), "least to greatest"]
    return Sheet(title, headings, rows, words=2)


def _along(pairs: Sequence[tuple[Setting, Setting]], line: tuple[Any, ...]) -> str:
    places = [f"{one.values[0]:g} to {other.values[0]:g}" for one, other in pairs if one.values[1:] == line]
    return "; ".join(places) or "-"


def _range(scene: Scene, index: int) -> str:
    means = [setting.claims[index].mean for setting in scene.settings]
    return " to ".join(_written(scene.claims[index], value) for value in (min(means), max(means)))


def _values(values: Sequence[Any]) -> str:
    return ", ".join(f"{value:,}" for value in values) or "simulated"


def page(predictions: Sequence[Prediction], scenes: Sequence[Scene]) -> str:
    """The whole of it, in Markdown."""
    memory = [scene for scene in scenes if all(claim.figure.metric in MEMORY_METRICS for claim in scene.claims)]
    scenes = [scene for scene in scenes if scene not in memory]
    parts = ["# Published results", _text("introduction"), "## A real server", _text("server")]
    for engine in dict.fromkeys(p.row.engine for p in predictions):
        those = [p for p in predictions if p.row.engine == engine]
        for sheet in (fidelity(engine, those), explained(engine, those)):
            parts += [f"**{sheet.title}**", in_page(sheet)]
    parts += ["## An engine before and after budgets", _text("claims"), in_page(claims_sheet(scenes, ""))]
    parts += ["## What would have to be true", _text("sensitivity")]
    for scene in scenes:
        if scene.settings:
            sheet = conditions(scene)
            parts += [f"### {scene.name}", wrapped(f"{sheet.title}:"), in_page(sheet)]
            parts += [f"![{scene.name}](published/{scene.name}.png)"]
    parts += ["## Memory", _text("memory"), in_page(claims_sheet(memory, ""))]
    return "\n\n".join(parts) + "\n"


def _text(name: str) -> str:
    return (TEXTS / f"{name}.md").read_text(encoding="utf-8").strip()
