"""Reads YAML as scenarios use it: numbers as YAML 1.2 has them, no key twice, and one line for whatever is wrong."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

from workloads.errors import InputError

LARGEST = 2**62  # no count, time or size in a scenario comes near
MOST_VALUES = 1_000_000  # in a document, those that aliases repeat included; the longest list has 100,000 entries
DEEPEST = 100
TOO_MUCH = f"it contains itself, is nested too deeply or has more than {MOST_VALUES} values"
MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """PyYAML's, but a key that stands twice is an error, and `1e6` is a number."""

    def get_single_node(self) -> yaml.Node | None:
        """Refused while aliases are still shared, since to merge or to walk what they spell out may take forever."""
        node = super().get_single_node()
        if node is not None and _size(node, {}) > MOST_VALUES:
            raise InputError(f"not YAML for a scenario: {TOO_MUCH}")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """With its own keys, which may stand again in what `<<` merges into it."""
        node = super().compose_mapping_node(anchor)
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self._key(key_node)
            if key in seen:
                raise InputError(f"line {key_node.start_mark.line + 1}: {key} stands twice")
            seen.add(key)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Own keys override merged ones, and earlier merged ones later; not all versions of PyYAML see to it."""
        pairs: dict[Any, Any] = {}
        for source in reversed([source for key, value in node.value if key.tag == MERGE for source in _sources(value)]):
            self.flatten_mapping(source)
            pairs.update((self._key(pair[0]), pair) for pair in source.value)
        pairs.update((self._key(pair[0]), pair) for pair in node.value if pair[0].tag != MERGE)
        node.value = list(pairs.values())

    def _key(self, node: yaml.Node) -> Hashable:
        key: Any = "<<" if node.tag == MERGE else self.construct_object(node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.MarkedYAMLError(problem="a key is text or a number", problem_mark=node.start_mark)
        return key

    def construct_power(self, node: yaml.ScalarNode) -> float:
        """`1e6` is the whole number 1000000, so that it can be a count."""
        value = float(self.construct_scalar(node))
        return int(value) if value.is_integer() else value


_POWER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
_Loader.add_implicit_resolver("!power", re.compile(f"^(?:{_POWER.pattern})$"), list("-+0123456789"))
# first of all resolvers, since the one for floats knows 1.0e+6 as well
for _start in "-+0123456789":
    _Loader.yaml_implicit_resolvers[_start].insert(0, _Loader.yaml_implicit_resolvers[_start].pop())
_Loader.add_constructor("!power", _Loader.construct_power)


def _sources(node: yaml.Node) -> list[yaml.MappingNode]:
    """The mappings that `<<` names: one, or several in a list."""
    sources: list[Any] = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for source in sources:
        if not isinstance(source, yaml.MappingNode):
            raise yaml.MarkedYAMLError(problem="<< takes a mapping, or a list of them", problem_mark=source.start_mark)
    return sources


def _size(node: yaml.Node, sizes: dict[yaml.Node, int]) -> int:
    """Nodes in it, aliases counted wherever they stand; what contains itself has too many."""
    if node not in sizes:
        sizes[node] = MOST_VALUES
        inner = itertools.chain.from_iterable(node.value) if isinstance(node, yaml.MappingNode) else node.value
        sizes[node] = 1 + sum(_size(n, sizes) for n in inner) if isinstance(node, yaml.CollectionNode) else 1
    return sizes[node]


def parse(text: str) -> Any:
    """One YAML value. Raises InputError, one line, with the line where something is wrong if there are several."""
    try:
        value = yaml.load(text, _Loader)
        _check_numbers(value)
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {_problem(error)}") from None
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # 2026-13-45, or a number of thousands of digits
        raise InputError(f"not a value: {error}") from None
    except RecursionError:
        raise InputError(f"not YAML for a scenario: {TOO_MUCH}") from None
    return value


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """All that is inside, with dotted places. InputError if there is no end to it."""
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    for _ in range(MOST_VALUES):
        if not waiting:
            return
        place, item = waiting.pop()
        if len(place) > DEEPEST:
            break
        if isinstance(item, dict | list | tuple):
            inner = item.items() if isinstance(item, dict) else enumerate(item)
            waiting.extend([((*place, key), part) for key, part in inner])
        else:
            yield ".".join(map(str, place)), item
    raise InputError(f"not a scenario's: {TOO_MUCH}")


def check_ends(value: Any) -> None:
    """InputError for a value that a program made and that could not be walked."""
    for _ in walk(value):
        pass


def _check_numbers(value: Any) -> None:
    """Numbers that overflow somewhere deep inside are refused at once. NaN and infinity are left to the fields."""
    for place, item in walk(value):
        if isinstance(item, int | float) and LARGEST < abs(item) < float("inf"):
            raise InputError(f"{place}: {'-' * (item < 0)}{abs(item):.3g} is too large".removeprefix(": "))


def read(file: Path) -> dict[Any, Any]:
    """The file's mapping. Raises InputError if there is none."""
    try:
        content = parse(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{file}: cannot be read: not UTF-8 text") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    if content is None:
        raise InputError(f"{file}: is empty; a scenario is a mapping")
    if not isinstance(content, dict):
        raise InputError(f"{file}: a scenario is a mapping, this is {shown(content)}")
    return content


def shown(value: Any) -> str:
    """A value in a message: short, and in YAML's words."""
    match value:
        case None | True | False:
            return written(value)
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def written(value: Any) -> str:
    """A value on one line as YAML has it: `true`, `null`, `[1, 2]`."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return text.strip().removesuffix("\n...").strip()


def _problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    problem = f"{error.context}: {error.problem}" if error.context else error.problem
    hint = " (YAML is indented with spaces)" if "'\\t'" in (error.problem or "") else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{hint}"
