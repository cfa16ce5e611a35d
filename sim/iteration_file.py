"""Writes `iterations.parquet`, piece by piece."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.files import whole
from sim.iteration_pieces import COLUMNS, TIMES, Columns
from sim.result import Run

# 400,000 iterations: 21 ms and 11 MB; twice as long where columns may hold nulls, four times with dictionaries
FAST: dict[str, Any] = {
    "compression": "snappy",
    "use_dictionary": False,
    "write_statistics": False,
    "data_page_size": 2**17,
}
RISING = {  # snappy finds nothing in times that never repeat, and differences tell all of a number that counts up
    "compression": {name: "none" if name in ("start", "end") else "snappy" for name in (*COLUMNS, "engine")},
    "column_encoding": {"iteration": "DELTA_BINARY_PACKED"},
}
NAMED = FAST | {"use_dictionary": ["engine"]}
ROWS = 32768  # written at a time: groups of 2,000 take twice as long
BUFFER = 2**20  # bytes handed to the system at a time: a tenth faster than page by page
ENGINE = pa.field("engine", pa.dictionary(pa.int16(), pa.string()), nullable=False)
SCHEMA = pa.schema(
    [*(pa.field(name, pa.float64() if name in TIMES else pa.int64(), nullable=False) for name in COLUMNS), ENGINE]
)


def write_iterations(run: Run, path: Path) -> None:
    """So that a long run needs no memory for the whole; no file where iterations are not kept."""
    if not run.scenario.measure.iterations:
        path.unlink(missing_ok=True)
        return
    with (
        whole(path) as partial,
        pa.output_stream(partial, buffer_size=BUFFER) as file,
        pq.ParquetWriter(file, SCHEMA, **NAMED | RISING) as writer,
    ):
        for table in _grouped(run.iteration_pieces(), run.engines):
            writer.write_table(table)
            del table  # so that the next one lies in the same memory


def _grouped(pieces: Iterable[Columns], engines: Sequence[str]) -> Iterator[pa.Table]:
    """Small pieces together, cut every ROWS rows however they came, so that equal tables are equal files."""
    rest, names = SCHEMA.empty_table(), pa.array(engines)
    for piece in pieces:
        rest = pa.concat_tables([rest, _named(piece, names)])
        del piece
        while rest.num_rows >= ROWS:
            yield rest.slice(0, ROWS)
            rest = rest.slice(ROWS)
    yield rest


def _named(piece: Columns, names: pa.Array) -> pa.Table:
    """With the name of the engine in every row."""
    numbers = piece.get("engine", np.zeros(len(piece["start"]), np.int16))
    return pa.Table.from_pydict(piece | {"engine": pa.DictionaryArray.from_arrays(numbers, names)}, schema=SCHEMA)
