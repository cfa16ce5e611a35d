"""The CSV of timings that `tandem fit` turns into a profile: `#` lines of YAML that say what was timed, then rows."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml

from executor.calibrate_figures import HeaderDumper, memory_of, stated
from executor.devices import device_name, total_bytes
from executor.models import LoadedModel
from sim.files import whole, writing

COLUMNS = ("stage", "images", "tokens", "chunk", "cached", "prompt", "decodes", "context", "total_ms", "repeats", "cv")
MEANINGS = {
    "stage": "encoder, prefill, decode or mixed",
    "images, tokens": "of the encoder, pre-merger tokens in each image",
    "chunk, cached": "tokens prefilled in the iteration and before it",
    "prompt": "where the chunk stands for several: twice the tokens that its queries attend to on average",
    "decodes, context": "sequences that decode, tokens in the context of each (their mean)",
    "total_ms": "milliseconds on the device, host time left out (median of the repeats)",
    "repeats, cv": "how often it was timed, and standard deviation over mean",
}


@dataclass(frozen=True)
class Host:
    """Engine time on the host, once per iteration."""

    ms: float
    how: str  # it was measured


@dataclass(frozen=True)
class Calibration:
    """All that goes into the file."""

    loaded: LoadedModel
    clock: str
    rows: Sequence[dict[str, Any]]
    host: Host
    how: str  # the shapes were timed
    noise: dict[str, float]  # percent, per stage
    partial: bool = False
    notes: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """Whole or not at all."""
        with writing(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole(path) as partial:
                partial.write_text(self._header() + self._table(), encoding="utf-8")

    def _table(self) -> str:
        table: str = pd.DataFrame(list(self.rows), columns=list(COLUMNS)).to_csv(index=False, lineterminator="\n")
        return table

    def _header(self) -> str:
        text = yaml.dump(self.header(), Dumper=HeaderDumper, sort_keys=False, allow_unicode=True, width=2**16)
        return "".join(f"# {line}\n" for line in text.splitlines())

    def header(self) -> dict[str, Any]:
        """All of a profile that is not fitted (`sim.figures`), and how it was measured."""
        name = self._device_name()
        return {
            "device": {
                "name": name,
                "memory": stated(total_bytes(self.loaded.device), "bytes", self._memory_source()),
            },
            "model": self.loaded.shape.name,
            "label": f"measured on {name}, by {self.clock}{' (interrupted, partial)' if self.partial else ''}",
            "source": self._source(),
            "corrections": self._corrections(),
            "memory": memory_of(self.loaded),
            "measurement": self._measurement(),
            "columns": MEANINGS,
        }

    def _device_name(self) -> str:
        threads = torch.get_num_threads()
        name = device_name(self.loaded.device)
        if self.loaded.device.type == "cuda":
            return name
        return f"{name} CPU, {threads} thread{'' if threads == 1 else 's'}".replace("CPU CPU", "CPU")

    def _memory_source(self) -> str:
        if self.loaded.device.type == "cuda":
            return "the total_memory that CUDA reports"
        return "the machine's physical memory"

    def _source(self) -> dict[str, Any]:
        return {
            "package": "tandem calibrate",
            "version": version("tandem-serving"),
            "licence": "Apache-2.0",
            "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
            "backend": f"torch {torch.__version__}, transformers {version('transformers')}",
            "dtype": self.loaded.dtype_name,
            "gpus": 1,  # devices: one runs everything
            "queried": f"{date.today():%Y-%m}",
            "clock": self.clock,
        }

    def _corrections(self) -> dict[str, Any]:
        return {
            "label": "what the timings leave out, measured beside them: host time; nothing else",
            "encoder_offset": stated(0.0, "ms", "0: whole calls were timed"),
            "language_model_factor": stated(1.0, "1", "1: whole iterations were timed"),
            "host": stated(float(f"{self.host.ms:.4g}"), "ms", self.host.how),
        }

    def _measurement(self) -> dict[str, Any]:
        return {
            "date": f"{date.today():%Y-%m-%d}",
            "clock": self.clock,
            "method": self.how,
            "noise_percent": self.noise,
            "partial": self.partial,
            "notes": self.notes,
        }
