"""ServeGen's files: one client's arrival rates by ten minutes, and its distributions of every field by six hours."""

import ast
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from workloads.distributions import Empirical
from workloads.errors import InputError
from workloads.frozen import FloatArray
from workloads.images import MAX_PICTURES
from workloads.trace import TRACE_END, cells, lines

WINDOW = 600.0  # seconds for which one line of a client's trace holds
MAX_RATE = 10_000.0  # requests per second of one client: a window is drawn at once
FIELDS = ("text_tokens", "image_count", "image_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class Window:
    """Ten minutes of one client's arrivals."""

    start: float  # seconds
    rate: float  # requests per second
    gaps: str  # Gamma or Weibull; empty where the rate is 0
    shape: float

    def unit_gaps(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Gaps with this window's variation and mean 1."""
        if self.gaps == "Gamma":
            return rng.gamma(self.shape, 1 / self.shape, n)
        return rng.weibull(self.shape, n) / math.gamma(1 + 1 / self.shape)

    def times(self, first: float, rng: np.random.Generator) -> tuple[FloatArray, float]:
        """Arrivals in seconds, and how far the next one lies past the end; both ends in expected arrivals.

        Time is stretched by the rate, so a gap that crosses into the next window goes on at its pace.
        """
        mass, sums = self.rate * WINDOW, np.array([first])
        while sums[-1] < mass:
            gaps = self.unit_gaps(rng, max(16 + int(mass - sums[-1]), len(sums)))
            sums = np.concatenate([sums, sums[-1] + np.cumsum(gaps)])
        inside = int(np.searchsorted(sums, mass))
        return self.start + sums[:inside] / self.rate if inside else sums[:0], float(sums[inside]) - mass


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a client sends from `start` on: one distribution a field, each drawn on its own."""

    start: float  # seconds
    fields: dict[str, Empirical]


def read_windows(path: Path) -> Iterator[Window]:
    """Lines of start, rate, coefficient of variation, distribution family, shape, scale; idle ones have rate 0."""
    for number, line in lines(path):
        try:
            start, rate, _, family, shape, _ = cells(line)
            window = Window(float(start), float(rate), family, float(shape))
            check_window(window)
        except ValueError as error:
            raise InputError(f"{path}:{number}: {error}") from error
        yield window


def check_window(window: Window) -> None:
    """ValueError on what nothing can be drawn from."""
    if not (0 <= window.rate <= MAX_RATE and 0 <= window.start <= TRACE_END - WINDOW):
        raise ValueError(
            f"start and rate must be finite and not negative, within {TRACE_END} s and {MAX_RATE:g} requests/s, "
            f"got {window.start:g} and {window.rate:g}"
        )
    least = {"Gamma": 1e-6, "Weibull": 0.05}.get(window.gaps, math.inf)  # below, a mean gap is beyond any float
    if window.rate and not least <= window.shape < math.inf:
        raise ValueError(f"no gaps can be drawn from {window.gaps or 'no distribution'} with shape {window.shape:g}")


def _distribution(field: str, text: str) -> Empirical:
    """ValueError, with the field's name, if the text does not spell one."""
    try:
        return Empirical(values=ast.literal_eval(text))
    except ValidationError as error:
        raise ValueError(f"{field}: {error.errors()[0]['msg']}") from None
    except (ValueError, SyntaxError, TypeError) as error:
        raise ValueError(f"{field}: {error}") from None


def read_datasets(path: Path) -> list[Dataset]:
    """The distributions by start in seconds; each is a string that spells a mapping of value to probability."""
    text = "\n".join(line for _, line in lines(path))
    try:
        windows = json.loads(text).items()
        datasets = [
            Dataset(float(start), {field: _distribution(field, fields[field]) for field in FIELDS})
            for start, fields in windows
        ]
    except KeyError as error:
        raise InputError(f"{path}: no field {error}") from error
    except (ValueError, SyntaxError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: not a ServeGen dataset ({str(error).splitlines()[0]})") from error
    except (RecursionError, MemoryError) as error:
        raise InputError(f"{path}: not a ServeGen dataset (nested too deeply)") from error
    if not datasets:
        raise InputError(f"{path}: no distributions")
    if any(dataset.fields["image_count"].largest() > MAX_PICTURES for dataset in datasets):
        raise InputError(f"{path}: a request has at most {MAX_PICTURES} images")
    return sorted(datasets, key=lambda dataset: dataset.start)
