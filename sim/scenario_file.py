"""From a YAML file to a scenario, and from whatever is wrong with it to one line that says where."""

from __future__ import annotations

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from sim.unsupported import refusal
from workloads.errors import InputError

M = TypeVar("M", bound=BaseModel)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise InputError(f"line {node.start_mark.line + 1}: {key} stands twice")
        return super().construct_mapping(node, deep)


def parse(text: str) -> Any:
    """One YAML value. Numbers like 1e6 are numbers, as in YAML 1.2."""
    value = yaml.load(text, _Loader)
    return _as_number(value)


def _as_number(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_number(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_number(item) for item in value]
    if isinstance(value, str) and "e" in value.lower():
        try:
            number = float(value)
        except ValueError:
            return value
        return int(number) if number.is_integer() else number
    return value


def read(file: Path) -> dict[str, Any]:
    """The file's mapping. Raises InputError if there is none."""
    try:
        content = parse(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{file}: a scenario is a mapping, this is {_named(content)}")
    return content


def decode(kind: type[M], content: dict[str, Any], file: Path, changes: Mapping[str, Any]) -> M:
    """The object that the mapping describes; its name is the file's unless it says otherwise."""
    content = {"name": file.stem.split(".")[0] or "scenario", **content}
    for path, value in changes.items():
        assign(content, path, value)
    _refuse(content, file)
    try:
        return kind.model_validate(content, context={"base": file.parent})
    except ValidationError as error:
        raise InputError(f"{file}: {_first_problem(kind, error, content)}") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def assign(content: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path; sections on the way must be mappings or lists, or absent and then made."""
    *way, last = path.split(".")
    node: Any = content
    for part in way:
        node = node.setdefault(part, {}) if isinstance(node, dict) else _element(node, part, path)
        if node is None or isinstance(node, str | int | float):
            raise InputError(f"--set {path}: {part} is not a section")
    if isinstance(node, list):
        _element(node, last, path)
        node[int(last)] = value
    else:
        node[last] = value


def _element(node: Any, part: str, path: str) -> Any:
    if not part.isdigit() or int(part) >= len(node):
        raise InputError(f"--set {path}: {part} is none of the {len(node)} entries there (0 is the first)")
    return node[int(part)]


def _refuse(content: Any, file: Path, place: str = "") -> None:
    """What engines have and we do not yet is refused by name, wherever it stands."""
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        path = f"{place}{key}"
        if reason := refusal(str(key)):
            raise InputError(f"{file}: {path}: {reason}")
        _refuse(value, file, f"{path}.")


def _first_problem(kind: type[BaseModel], error: ValidationError, content: Any) -> str:
    """`place: what is wrong`, with the nearest valid name for a misspelt one."""
    first = error.errors(include_url=False)[0]
    place = _place(first["loc"], content)
    allowed = error.errors(include_url=False)[0].get("ctx", {}).get("expected_tags")
    match first["type"]:
        case "extra_forbidden":
            message = f"unknown key{_nearest(str(first['loc'][-1]), _fields(kind, first['loc'][:-1]))}"
        case "union_tag_invalid":
            message = f"unknown kind {first['ctx']['tag']!r}{_nearest(first['ctx']['tag'], _split(allowed))}"
        case "union_tag_not_found":
            message = "kind is missing"
        case "missing":
            message = "is missing"
        case "value_error":
            message = str(first["ctx"]["error"])
        case _:
            shown = "" if isinstance(first["input"], dict | list) else f", not {_named(first['input'])}"
            message = f"{first['msg'][0].lower()}{first['msg'][1:]}{shown}"
    return f"{place}: {message}" if place else message


def _split(tags: str | None) -> list[str]:
    return [tag.strip("' ") for tag in (tags or "").split(",")]


def _place(loc: tuple[int | str, ...], content: Any) -> str:
    """The path as it stands in the file: without the names that pydantic adds for the members of a union."""
    parts, node = [], content
    for index, part in enumerate(loc):
        is_last = index == len(loc) - 1
        if isinstance(node, dict) and (part in node or is_last):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int):
            node = node[part] if part < len(node) else None
        else:
            continue
        parts.append(str(part))
    return ".".join(parts)


def _fields(kind: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Field names of the object at `loc`, through the schema that pydantic writes for editors."""
    schema = kind.model_json_schema()
    node = schema
    for part in loc:
        node = _child(schema, node, part)
    return list(_resolved(schema, node).get("properties", {}))


def _child(schema: Any, node: Any, part: int | str) -> Any:
    node = _resolved(schema, node)
    if part in node.get("properties", {}):
        return node["properties"][part]
    if isinstance(part, int) and "items" in node:
        return node["items"]
    for key in ("anyOf", "oneOf"):
        for option in node.get(key, ()):
            resolved = _resolved(schema, option)
            kinds = resolved.get("properties", {}).get("kind", {})
            if part in (kinds.get("const"), kinds.get("default"), resolved.get("title")):
                return resolved
            if part in resolved.get("properties", {}):
                return resolved["properties"][part]
    return node


def _resolved(schema: Any, node: Any) -> Any:
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return node


def _nearest(name: str, names: list[str]) -> str:
    nearest = get_close_matches(name, names, n=1, cutoff=0.4)
    return f"; nearest: {nearest[0]}" if nearest else (f"; one of: {', '.join(sorted(names))}" if names else "")


def _named(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def relative_to_cwd(path: Path) -> str:
    """As short as the user would write it."""
    return os.path.relpath(path) if path.is_absolute() else str(path)
