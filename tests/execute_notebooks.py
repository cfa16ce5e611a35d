"""Executes notebooks in a kernel: `python tests/execute_notebooks.py [01 ...]` writes each beside its script."""

from __future__ import annotations

import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent.parent / "notebooks"
SCRIPTS = sorted(FOLDER.glob("*.py"))
WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "jupytext": {"formats": "ipynb,py:percent"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
}
QUIET = ["--log-level=ERROR"]  # else each kernel warns that it listens on this machine's own address
LONGEST = 240  # seconds that a cell may take on a busy machine


def executed(script: Path) -> NotebookNode:
    """The notebook of a percent script with its outputs, the same at each run. Raises where a cell fails."""
    notebook = jupytext.read(script)
    where = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=LONGEST, kernel_name="python3", resources=where, extra_arguments=QUIET).execute()
    return _settled(notebook)


def _settled(notebook: NotebookNode) -> NotebookNode:
    """Without the times of execution, random ids and sliders, which live only as long as their kernel."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells, 1):
        cell.id, cell.metadata = f"cell-{number:02}", NotebookNode()
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if WIDGET not in output.get("data", {})]
    return notebook


def sources(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Kind and text of each cell."""
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def texts(notebook: NotebookNode) -> list[str]:
    """All that its outputs say; pictures are left out, as their bytes are other ones with another matplotlib."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]


def main(names: list[str]) -> None:
    for script in SCRIPTS:
        if not names or any(script.name.startswith(name) for name in names):
            nbformat.write(executed(script), script.with_suffix(".ipynb"))
            print(script.with_suffix(".ipynb"))


if __name__ == "__main__":
    main(sys.argv[1:])
