"""All plots of a sweep, as PNG files: those for which it has varied enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from sim.files import remove_partials
from sim.plot_style import save
from sim.plot_sweep_knobs import heat_map, pareto
from sim.plot_sweep_load import against_load
from sim.sweep_means import Swept

NAMES = ("load", "heat_map", "pareto")


def write_sweep_plots(swept: Swept, folder: Path) -> list[Path]:
    """Into `folder`, and say where; those of an earlier sweep are removed."""
    for name in NAMES:
        (folder / f"{name}.png").unlink(missing_ok=True)
    remove_partials(folder)
    return [save(fig, folder / f"{name}.png") for name, fig in _figures(swept)]


def _figures(swept: Swept) -> Iterator[tuple[str, Figure]]:
    if swept.load is not None and len(swept.means):
        yield "load", against_load(swept, swept.load)
    if (pair := swept.pair()) is not None:
        yield "heat_map", heat_map(swept, *pair)
    if len(swept.means) > 1:
        yield "pareto", pareto(swept)
