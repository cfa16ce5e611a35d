"""Scenarios and `--set path=value,value` options, multiplied into labelled variants."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.printing import LONGEST, short
from sim.scenario import Scenario
from sim.world import Resolved, resolve
from sim.yaml_text import parse, written
from workloads.errors import InputError

OPENING, CLOSING, QUOTES = "[{", "]}", "'\""


@dataclass(frozen=True)
class Option:
    """One `--set`: its path, and each of its values as written and as YAML reads it."""

    path: str
    values: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Variant:
    """One run to be: a scenario file, what is changed in it, and how the command's other runs are told from it."""

    file: Path
    changes: dict[str, Any]
    label: str  # empty for a command's only run

    def resolve(self, resolving: Callable[[Scenario], Resolved] = resolve) -> Resolved:
        """Raises InputError, one line with the file in it."""
        scenario = Scenario.load(self.file, self.changes)
        try:
            return resolving(scenario)
        except InputError as error:
            raise InputError(f"{self.file}: {error}") from None


def expand(files: Sequence[Path], sets: Iterable[str]) -> list[Variant]:
    """Every file with every combination of values, the last option varying fastest; labels say only what differs."""
    options = [option(text) for text in sets]
    paths = [o.path for o in options]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise InputError(f"--set {twice}: given twice; its values go into one option, separated by commas")
    names = value_names([o.path for o in options if len(o.values) > 1])
    variants = []
    for (file, name), *chosen in itertools.product(_named(files), *(o.values for o in options)):
        words = [name] if len(files) > 1 else []
        words += [_word(names[o.path], *value) for o, value in zip(options, chosen, strict=True) if o.path in names]
        changes = {o.path: value for o, (_, value) in zip(options, chosen, strict=True)}
        variants.append(Variant(file, changes, " ".join(words)))
    labels = numbered([variant.label for variant in variants])
    return [Variant(v.file, v.changes, label) for v, label in zip(variants, labels, strict=True)]


def _named(files: Sequence[Path]) -> list[tuple[Path, str]]:
    """Files with their names, or where two are alike with what differs in their paths."""
    names = [file.stem for file in files]
    if len(set(names)) < len(names):
        paths = [file.parts for file in files]
        start, end = _alike(paths), _alike([path[::-1] for path in paths])
        names = ["/".join(path[start : len(path) - end]) or path[-1] for path in paths]
    return list(zip(files, names, strict=True))


def _alike(paths: list[tuple[str, ...]]) -> int:
    """How many parts all paths begin with."""
    return sum(1 for _ in itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False)))


def option(text: str) -> Option:
    """`path=value` or `path=value,value`, each value in YAML."""
    path, equals, values = text.partition("=")
    path = path.strip()
    if not equals or not path or len(path) > LONGEST:
        raise InputError(f"--set {short(text)}: reads like path=value, as in policy.kind=fcfs")
    return Option(path, tuple((value, _value(path, value)) for value in split(values)))


def _value(path: str, text: str) -> Any:
    if not text:
        raise InputError(f"--set {path}: a value is empty; null is written out")
    try:
        return parse(text)
    except InputError as error:
        raise InputError(f"--set {path}: {short(text)}: {error}") from None


def split(text: str) -> list[str]:
    """At commas, but for those inside brackets, braces or quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in QUOTES and (not parts[-1].strip() or parts[-1].rstrip()[-1] in "[{,:"):
            quote = character  # an apostrophe inside a word quotes nothing
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif character == "," and depth <= 0:
            parts.append("")
            continue
        parts[-1] += character
    return [part.strip() for part in parts]


def value_names(paths: list[str]) -> dict[str, str]:
    """For each path the shortest end of it that no other path has; nothing for a kind, whose values tell enough."""
    names = {}
    for path in paths:
        parts = path.split(".")
        ends = (".".join(parts[-length:]) for length in range(1, len(parts) + 1))
        names[path] = next(end for end in ends if sum(f".{other}".endswith(f".{end}") for other in paths) == 1)
    return {path: "" if name == "kind" else name for path, name in names.items()}


def _word(name: str, text: str, value: Any) -> str:
    """As it was written, but truth and nothing always in YAML's own words."""
    text = written(value) if value is None or isinstance(value, bool) else text
    return f"{name}={text}" if name else text


def numbered(names: list[str]) -> list[str]:
    """Names that differ: those that stand there more than once get a number."""
    taken, result = set(names), []
    for index, name in enumerate(names):
        unique, number = name, 1
        while name in names[:index] and (unique in taken):
            number += 1
            unique = f"{name}-{number}"
        taken.add(unique)
        result.append(unique)
    return result


def folder_names(labels: list[str]) -> list[str]:
    """Labels as names of folders beside `plots`, all different."""
    names = [re.sub(r"[^\w.=+-]+", "_", label).strip("._-")[:80] or "run" for label in labels]
    return numbered(["plots", *names])[1:]
