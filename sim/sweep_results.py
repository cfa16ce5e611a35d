"""A sweep's results on disk: one Parquet file a finished point, all of them together one data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from sim.files import remove_partials, whole, writing
from sim.published import METRICS
from sim.sweep_knobs import Knob, Range
from sim.sweep_points import Point
from sim.sweep_row import Row
from sim.yaml_text import written
from workloads.errors import InputError

TEXTS = ("verdict", "reason", "load")
RESULTS = "results"


class Results:
    """Those that there are, whoever simulated them; a point is known by its id."""

    def __init__(self, folder: Path, knobs: Mapping[str, Knob]) -> None:
        """Reads what an earlier sweep left in `folder`. Raises InputError if that had other knobs."""
        self.folder = folder
        self.schema = _schema(knobs)
        self._rows: dict[str, Row] = {}
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            remove_partials(folder)
        for path in sorted(folder.glob("*.parquet")):
            self._rows[path.stem] = _read(path, self.schema)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, point: Point) -> bool:
        return point.id in self._rows

    def __getitem__(self, point: Point) -> Row:
        return self._rows[point.id]

    def add(self, point: Point, row: Row) -> None:
        """Whole or not at all, and the same bytes whenever the point is simulated."""
        content = {"point": point.id, **_columns(point, self.schema), **row}
        table = pa.Table.from_pylist([content], schema=self.schema)
        with writing(self.folder), whole(self.folder / f"{point.id}.parquet") as partial:
            pq.write_table(table, partial, compression="none", use_dictionary=False, write_statistics=False)
        self._rows[point.id] = table.to_pylist()[0]

    def table(self, points: Sequence[Point]) -> pd.DataFrame:
        """A row a point, in their order."""
        rows = [self[point] | _columns(point, self.schema) for point in points]
        table: pd.DataFrame = pa.Table.from_pylist(rows, schema=self.schema).to_pandas()
        return table


def _schema(knobs: Mapping[str, Knob]) -> pa.Schema:
    named = [("point", pa.string()), *((path, _type(knob)) for path, knob in knobs.items())]
    numbered = [("replication", pa.int64()), ("seed", pa.int64())]
    figures = [(name, pa.float64()) for name in METRICS]
    return pa.schema([*named, *numbered, *((name, pa.string()) for name in TEXTS), *figures])


def _type(knob: Knob) -> pa.DataType:
    """Numbers, truth values, or else texts as YAML has them."""
    values = [knob.min] if isinstance(knob, Range) else knob
    if all(isinstance(value, bool) for value in values):
        return pa.bool_()
    return pa.float64() if all(type(value) in (int, float) for value in values) else pa.string()


def _columns(point: Point, schema: pa.Schema) -> Row:
    knobs = {path: _cell(value, schema.field(path).type) for path, value in point.setting.items()}
    return {**knobs, "replication": point.replication, "seed": point.seed}


def _cell(value: Any, kind: pa.DataType) -> Any:
    if not pa.types.is_string(kind):
        return value
    return value if isinstance(value, str) else written(value)


def _read(path: Path, schema: pa.Schema) -> Row:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: is not a whole Parquet file, remove it: {' '.join(str(error).split())}") from None
    if table.schema != schema or table.num_rows != 1:
        raise InputError(f"{path}: is of a sweep with other knobs or of another version; choose another --out")
    row: Row = table.to_pylist()[0]
    return row
