"""Published silicon tables as a source of profiles: `aiconfigurator:<system>/<backend>/<model>[-tp<N>]`."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import pandas as pd

from sim.architecture import ARCHITECTURES, Architecture
from sim.complaints import nearest
from sim.corrections import corrections
from sim.devices import DEVICES
from sim.floors import roofline
from workloads.errors import InputError

PREFIX = "aiconfigurator:"
PACKAGE, VERSION = "aiconfigurator-core", "0.12.0"
BACKENDS = ("sglang", "vllm", "trtllm")
FORM = f"{PREFIX}<system>/<backend>/<model>, and -tp<N> behind the model for N ranks"
NEEDS_PACKAGE = f"the published tables need {PACKAGE}=={VERSION}: pip install -e '.[profiles]'"
WINDOWS = "; windowed attention of the encoder approximated: whole windows of 64 patches"


class Silicon(NamedTuple):
    """One model on one system under one backend, split over so many ranks."""

    system: str
    backend: str
    model: str
    ranks: int

    @classmethod
    def parse(cls, source: str) -> Silicon:
        """Raises InputError that names what is nearest."""
        parts = re.fullmatch(r"([^/]+)/([^/]+)/([^/]+?)(?:-tp([1-9]\d{0,2}))?", source.removeprefix(PREFIX))
        if not parts:
            raise InputError(f"{source}: is not {FORM}")
        system, backend, model, ranks = parts.groups()
        known = {"system": [*DEVICES], "backend": [*BACKENDS], "model": [*ARCHITECTURES]}
        for (what, names), given in zip(known.items(), (system, backend, model), strict=True):
            if given not in names:
                raise InputError(f"{source}: no {what} {given!r}{nearest(given, names)}")
        silicon = cls(system, backend, model, int(ranks or 1))
        silicon._check_ranks(source)
        return silicon

    def _check_ranks(self, source: str) -> None:
        heads = self.architecture.language.heads, self.architecture.vision.heads
        if any(number % self.ranks for number in heads):
            raise InputError(f"{source}: {self.ranks} ranks cannot share {heads[0]} heads and the encoder's {heads[1]}")

    @property
    def architecture(self) -> Architecture:
        return ARCHITECTURES[self.model]

    @property
    def name(self) -> str:
        """The profile's: `h200/qwen3-vl-8b-sglang-tp1`."""
        return f"{DEVICES[self.system].folder}/{self.model}-{self.backend}-tp{self.ranks}"

    @property
    def source(self) -> str:
        ranks = f"-tp{self.ranks}" if self.ranks > 1 else ""
        return f"{PREFIX}{self.system}/{self.backend}/{self.model}{ranks}"

    def rows(self) -> pd.DataFrame:
        """Raises InputError where the package or its table is missing."""
        _check_package()
        logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
        from sim.silicon_rows import silicon_rows

        try:
            return silicon_rows(self.architecture, self.system, self.backend, self.ranks)
        except Exception as error:  # whatever a package of this kind raises where it has no such table
            raise InputError(f"{self.source}: {PACKAGE} has no such table: {_first_line(error)}") from None

    def header(self) -> dict[str, Any]:
        """All of the profile that is not fitted."""
        device = DEVICES[self.system]
        return {
            "device": device.figures(),
            "model": self.model,
            "label": self._label,
            "source": self._provenance(),
            "corrections": corrections(own_log=self.name == "h200/qwen3-vl-8b-sglang-tp1"),
            "memory": self.architecture.memory(self.ranks),
            "roofline": roofline(self.architecture, device, self.ranks),
        }

    @property
    def _label(self) -> str:
        ranks = f", {self.ranks} GPUs" if self.ranks > 1 else ""
        windows = WINDOWS if self.architecture.vision.windowed else ""
        return f"fitted to published timings ({PACKAGE} {VERSION}{ranks}), corrected by a server's log{windows}"

    def _provenance(self) -> dict[str, Any]:
        from sim.silicon_rows import version_of

        return {
            "package": f"{PACKAGE} (PyPI), its measured silicon tables",
            "version": VERSION,
            "licence": "Apache-2.0",
            "system": self.system,
            "backend": self.backend,
            "backend_version": version_of(self.system, self.backend),
            "dtype": "bf16",
            "gpus": self.ranks,
            "queried": datetime.now(UTC).strftime("%Y-%m"),
        }


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _check_package() -> None:
    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        raise InputError(NEEDS_PACKAGE) from None
    if found != VERSION:
        raise InputError(f"{NEEDS_PACKAGE}; {found} is installed, whose tables may be others")
