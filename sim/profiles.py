"""Profiles: what one model costs on one device in time and memory, read from `scenarios/profiles`."""

import hashlib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo

from sim.cost_tables import NO_TABLES, Tables
from sim.figures import Coefficients, Corrections, Device, HeldOut, Memory, Range, Roofline, Source, Spread, Stated
from workloads.errors import InputError
from workloads.frozen import Frozen

REPOSITORY = Path(__file__).resolve().parent.parent
PROFILES = REPOSITORY / "scenarios" / "profiles"
DEFAULT_TABLE = "-sglang-tp1"  # `h200/qwen3-vl-8b` is short for `h200/qwen3-vl-8b-sglang-tp1`


class Profile(Frozen):
    """`scenarios/profiles/<device>/<model>-<backend>-tp<N>.json`; of several ranks, memory is that of one."""

    device: Device
    model: str
    label: str
    source: Source
    formula: str
    coefficients: Coefficients
    tables: Tables = NO_TABLES  # in the formula's place
    corrections: Corrections
    range: Range
    held_out: HeldOut
    spread: Spread | None = None  # what `tandem run --uncertainty` draws from
    memory: Memory
    roofline: Roofline | None = None  # where the device's peaks are known
    interference: Stated[Annotated[float, Field(ge=1, le=100)]] | None = None  # of a side stream, both ways
    _digest: str = PrivateAttr(default="")

    @property
    def digest(self) -> str:
        """SHA-256 of the file it was read from; empty for a profile that was not read from one."""
        return self._digest


def existing_profile(value: str, info: ValidationInfo) -> str:
    """A scenario's. A JSON file's path starts at the scenario's folder, as that of a trace does."""
    base = (info.context or {}).get("base")
    path = str((Path(base) / value).resolve()) if base is not None and value.endswith(".json") else value
    load_profile(path)
    return path


def from_here(profile: str) -> str:
    """As an option gives it: a file's path starts where the user is, a name in `scenarios/profiles`."""
    return str(Path(profile).resolve()) if profile.endswith(".json") else profile


def load_profile(name_or_path: str | Path, root: Path = REPOSITORY) -> Profile:
    """Reads a profile by name (`h200/qwen3-vl-8b`) or by path (`*.json`, relative to `root`).

    Raises InputError when the file is missing or is no profile.
    """
    path = _locate(str(name_or_path), root)
    try:
        content = path.read_bytes()
        profile = Profile.model_validate_json(content)
    except OSError as error:
        if str(name_or_path).endswith(".json"):
            raise InputError(f"no profile {str(path)!r}: {error.strerror}") from None
        raise InputError(f"no profile {str(name_or_path)!r}; {_nearest(str(name_or_path), root)}") from None
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}") from None
    profile._digest = hashlib.sha256(content).hexdigest()
    return profile


def _locate(name: str, root: Path) -> Path:
    if name.endswith(".json"):
        return root / name
    path = _folder(root) / f"{name}.json"
    return path if path.is_file() else path.with_stem(path.stem + DEFAULT_TABLE)


def _folder(root: Path) -> Path:
    return root / "scenarios" / "profiles"


def _nearest(name: str, root: Path) -> str:
    folder = _folder(root)
    paths = (path.relative_to(folder).as_posix() for path in folder.glob("*/*.json"))
    names = sorted(path.removesuffix(".json").removesuffix(DEFAULT_TABLE) for path in paths)
    nearest = get_close_matches(name, names, n=3, cutoff=0.0)
    return f"nearest: {', '.join(nearest)}" if nearest else f"there are none in {folder}"


def first_problem(error: ValidationError) -> str:
    """One line: where in the file, and what is wrong there."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]
