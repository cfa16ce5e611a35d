"""Published figures beside the simulated ones, each under its own label; nothing is tuned to make them agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.table import Table

from sim.published import Published, PublishedFigure
from sim.result import Run
from sim.scenario import Scenario
from sim.tables import new_table
from sim.variants import Variant, value_names
from sim.world import resolve
from sim.yaml_text import written
from workloads.errors import InputError


class Summarised(Protocol):
    """What a figure is looked up in."""

    @property
    def summary(self) -> Mapping[str, Any]: ...


Done = Sequence[tuple[Variant, Run]]
ByPolicy = Mapping[str, Summarised]
Changes = dict[str, Any]

NOT_RUN = "not run"
RECORDED = ("measure.iterations", "measure.allocator")  # what is kept of a run changes nothing in it


def published_tables(done: Done) -> list[tuple[str, Table, list[str]]]:
    """One for each scenario that has published figures: its title, the table, and what is to be said below it."""
    files: dict[str, list[tuple[Variant, Run]]] = {}
    for variant, run in done:
        if run.scenario.published is not None:
            files.setdefault(str(variant.file), []).append((variant, run))
    return [_titled(of_file) for of_file in files.values()]


def _titled(done: Done) -> tuple[str, Table, list[str]]:
    published = done[0][1].scenario.published
    assert published is not None
    situations: dict[str, tuple[Changes, dict[str, Summarised]]] = {}
    for variant, run in done:
        changes = _changes(variant)
        situations.setdefault(written(changes), (changes, {}))[1].setdefault(run.scenario.policy.kind, run)
    columns = list(situations.values())
    table = _table(published, columns)
    return f"published by {published.source}", table, [*_missing(published, columns), *_asides(columns)]


def _changes(variant: Variant) -> Changes:
    """What `--set` made other than the file has it, besides the policy: those who published did not."""
    changes = {path: value for path, value in variant.changes.items() if path.split(".")[0] not in ("policy", "name")}
    changes = {path: value for path, value in changes.items() if path not in RECORDED}
    policy = {path: value for path, value in variant.changes.items() if path.split(".")[0] == "policy"}
    return {path: value for path, value in changes.items() if not _is_moot(variant, policy, path, value)}


def _is_moot(variant: Variant, policy: Changes, path: str, value: Any) -> bool:
    """Whether the resolved scenario is the same without it, as it would be written; distributions keep arrays too."""
    try:
        without = resolve(Scenario.load(variant.file, policy)).scenario
        return (
            resolve(Scenario.load(variant.file, {**policy, path: value})).scenario.model_dump() == without.model_dump()
        )
    except InputError:  # it goes only together with the others
        return False


def _table(published: Published, columns: Sequence[tuple[Changes, ByPolicy]]) -> Table:
    table = new_table()
    table.add_column("metric", no_wrap=True)
    table.add_column(
        "of", min_width=max((len(word) for f in published.figures for word in whose(f).split()), default=1)
    )
    for heading in (published.label, *_headings([changes for changes, _ in columns])):
        table.add_column(heading, justify="right", no_wrap=True)
    with_notes = any(figure.note for figure in published.figures)
    if with_notes:
        table.add_column("note")
    for figure in published.figures:
        cells = [as_published(figure), *(simulated(figure, by_policy) for _, by_policy in columns)]
        table.add_row(figure.metric, whose(figure), *cells, *([figure.note] if with_notes else []))
    return table


def _headings(situations: Sequence[Changes]) -> list[str]:
    """`simulated`, and below it what sets a column apart from the others."""
    paths = list(dict.fromkeys(path for changes in situations for path in changes))
    names = value_names([path for path in paths if len({written(c.get(path)) for c in situations}) > 1])
    words = [[f"{names[path] or path}={written(c[path])}" for path in c if path in names] for c in situations]
    return ["\n".join(["simulated", *those]) for those in words]


def _asides(columns: Sequence[tuple[Changes, ByPolicy]]) -> list[str]:
    """Whatever column was not simulated as published."""
    words = [", ".join(f"{path}={written(value)}" for path, value in changes.items()) for changes, _ in columns]
    return [f"simulated with {those}, which the published figures do not have" for those in words if those]


def _missing(published: Published, columns: Sequence[tuple[Changes, ByPolicy]]) -> list[str]:
    """How to get the figures of policies that were not run."""
    needed = dict.fromkeys(kind for figure in published.figures for kind in _kinds(figure))
    if all(kind in by_policy for kind in needed for _, by_policy in columns):
        return []
    return [f"{NOT_RUN}: add --set policy.kind={','.join(needed)}"]


def _kinds(figure: PublishedFigure) -> list[str]:
    return [kind for kind in (figure.against, figure.policy) if kind is not None]


def whose(figure: PublishedFigure) -> str:
    against = figure.against or figure.against_metric
    return f"{figure.policy} against {against}" if against else figure.policy


def as_published(figure: PublishedFigure) -> str:
    if figure.change_words is not None:
        return figure.change_words
    return number(figure.value) if figure.value is not None else percent(figure.change_percent or 0.0)


def simulated(figure: PublishedFigure, by_policy: ByPolicy) -> str:
    """The same figure of these runs."""
    if any(kind not in by_policy for kind in _kinds(figure)):
        return NOT_RUN
    values = [by_policy[kind].summary.get(figure.metric) for kind in _kinds(figure)]
    if figure.against_metric is not None:
        values.insert(0, by_policy[figure.policy].summary.get(figure.against_metric))
    if any(value is None for value in values):
        return "-"
    if len(values) == 1:
        return number(values[0])
    before, after = values
    return percent((after - before) / before * 100) if before else "-"


def percent(change: float) -> str:
    """A change; of none there is no sign."""
    return f"{change:+.1f} %" if round(change, 1) else "0.0 %"


def number(value: Any) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.4g}"
