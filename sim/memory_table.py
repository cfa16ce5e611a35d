"""The table of a run's memory: one tensor an item beside static rows."""

from __future__ import annotations

from dataclasses import asdict

from rich.table import Table

from policies.units import in_bytes
from sim.result import Run
from sim.tables import new_table

TITLE = "memory with encoder outputs as one tensor an item, or as static rows; PyTorch's caching allocator, modelled"
ROWS = {
    "peak_reserved_bytes": "peak reserved",
    "peak_allocated_bytes": "peak allocated",
    "peak_inactive_split_bytes": "peak trapped (inactive split)",
    "device_allocations": "cudaMalloc calls",
    "allocation_retries": "cache given back, device full",
    "out_of_memory_errors": "out of memory",
}
IF_ANY = ("allocation_retries", "out_of_memory_errors")  # not shown where both are 0


def memory_table(run: Run) -> Table | None:
    """None where the scenario does not ask for it."""
    if run.memory is None:
        return None
    per_item, rows = asdict(run.memory["per_item"]), asdict(run.memory["rows"])
    table = new_table()
    table.add_column("", no_wrap=True)
    for heading in ("per item", "static rows", "difference", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, title in ROWS.items():
        if name not in IF_ANY or per_item[name] or rows[name]:
            table.add_row(title, *_cells(name, per_item[name], rows[name]))
    return table


def _cells(name: str, before: int, after: int) -> tuple[str, str, str, str]:
    amount = in_bytes if name.endswith("bytes") else "{:,}".format
    sign = "-" if after < before else "+" if after > before else ""
    percent = f"{(after - before) / before * 100:+.1f} %" if before and after != before else ""
    return amount(before), amount(after), f"{sign}{amount(abs(after - before))}", percent
