"""Published figures beside the simulated ones, each under its own label; nothing is tuned to make them agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from sim.published import PublishedFigure
from sim.result import Run
from sim.variants import Variant

Done = Sequence[tuple[Variant, Run]]


def published_tables(done: Done) -> list[tuple[str, Table]]:
    """With their titles, one for each situation that has published figures; its policies are compared."""
    situations: dict[tuple[str, str], dict[str, Run]] = {}
    for variant, run in done:
        situation = (str(variant.file), _changes(variant))
        situations.setdefault(situation, {}).setdefault(run.scenario.policy.kind, run)
    return [_titled(changes, by_policy) for (_, changes), by_policy in situations.items() if _has(by_policy)]


def _has(by_policy: dict[str, Run]) -> bool:
    return next(iter(by_policy.values())).scenario.published is not None


def _changes(variant: Variant) -> str:
    """What `--set` changes besides the policy: those who published did not."""
    return ", ".join(f"{path}={value}" for path, value in variant.changes.items() if path.split(".")[0] != "policy")


def _titled(changes: str, by_policy: dict[str, Run]) -> tuple[str, Table]:
    published = next(iter(by_policy.values())).scenario.published
    assert published is not None
    aside = f"; simulated with {changes}, which the published figures do not have" if changes else ""
    table = Table()
    for heading in ("metric", "of"):
        table.add_column(heading)
    for heading in (published.label, "simulated"):
        table.add_column(heading, justify="right")
    table.add_column("note")
    for figure in published.figures:
        table.add_row(figure.metric, _of(figure), _published(figure), simulated(figure, by_policy), figure.note)
    return f"published by {published.source}{aside}", table


def _of(figure: PublishedFigure) -> str:
    return f"{figure.policy} against {figure.against}" if figure.against else figure.policy


def _published(figure: PublishedFigure) -> str:
    return number(figure.value) if figure.value is not None else f"{figure.change_percent:+.1f} %"


def simulated(figure: PublishedFigure, by_policy: dict[str, Run]) -> str:
    """The same figure of these runs, or how to get it."""
    kinds = [kind for kind in (figure.against, figure.policy) if kind is not None]
    if any(kind not in by_policy for kind in kinds):
        return f"add --set policy.kind={','.join(kinds)}"
    values = [by_policy[kind].summary.get(figure.metric) for kind in kinds]
    if any(value is None for value in values):
        return "-"
    if figure.change_percent is None:
        return number(values[0])
    before, after = values
    return f"{(after - before) / before * 100:+.1f} %" if before else "-"


def number(value: Any) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:.4g}"
