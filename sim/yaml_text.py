"""Reads YAML as scenarios use it: numbers as YAML 1.2 has them, no key twice, and one line for whatever is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from workloads.errors import InputError

LARGEST = 2**62  # no count, time or size in a scenario comes near


class _Loader(yaml.SafeLoader):
    """PyYAML's, but a key that stands twice is an error, and `1e6` is a number."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise InputError(f"line {key_node.start_mark.line + 1}: {key} stands twice")
            seen.append(key)
        return super().construct_mapping(node, deep)

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


def parse(text: str) -> Any:
    """One YAML value. Raises InputError, one line, with the line where something is wrong if there are several."""
    try:
        value = yaml.load(text, _Loader)
        _check_numbers(value, "")
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {_problem(error)}") from None
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # 2026-13-45, or a number of thousands of digits
        raise InputError(f"not a value: {error}") from None
    except RecursionError:
        raise InputError("not YAML for a scenario: it contains itself, or is nested too deeply") from None
    return value


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
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def written(value: Any) -> str:
    """A value on one line as YAML has it: `true`, `null`, `[1, 2]`."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True)
    return text.strip().removesuffix("\n...").strip()


def _check_numbers(value: Any, place: str) -> None:
    """Numbers that overflow somewhere deep inside are refused at once. NaN and infinity are left to the fields."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            _check_numbers(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, int | float) and LARGEST < abs(value) < float("inf"):
        raise InputError(f"{place}: {'-' * (value < 0)}{abs(value):.3g} is too large".removeprefix(": "))


def _problem(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return " ".join(str(error).split())
    mark = error.problem_mark
    problem = f"{error.context}: {error.problem}" if error.context else error.problem
    hint = " (YAML is indented with spaces)" if "'\\t'" in (error.problem or "") else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{hint}"
