"""Says in one line what pydantic found wrong with a mapping: where, what, and which name is nearest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from sim.printing import short
from sim.yaml_text import shown

Location = tuple[int | str, ...]
Details = Mapping[str, Any]

SECTION = ("model_type", "model_attributes_type", "dict_type")
SELF_EXPLAINING = ("value_error", "extra_forbidden", "union_tag_invalid", "union_tag_not_found", "missing")


def complaint(kind: type[BaseModel], error: ValidationError, content: Any) -> tuple[str, str]:
    """(place in the file, what is wrong there); what is merely unknown comes before what is missing for it."""
    errors: list[Details] = list(error.errors(include_url=False))
    unknown = [details for details in errors if details["type"] in ("extra_forbidden", "invalid_key")]
    first = (unknown or errors)[0]
    place = _place(first, content)
    alike = [details for details in errors if _place(details, content)[: len(place)] == place]
    deepest = max(alike, key=lambda details: len(_place(details, content)))  # the member of a union that was meant
    place = _place(deepest, content)
    same = [details for details in alike if _place(details, content) == place]
    kinds = ("kind",) if deepest["type"] == "union_tag_invalid" else ()
    return short(".".join(map(str, (*place, *kinds)))), _message(kind, same, _parent(content, place))


def _place(details: Details, content: Any) -> Location:
    """The path as it stands in the file: without the names that pydantic adds for the members of a union."""
    parts, node = [], content
    for index, part in enumerate(details["loc"]):
        missing = details["type"] == "missing" and index == len(details["loc"]) - 1
        if isinstance(node, dict) and (key := _key(node, part)) is not None:
            node = node[key]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        elif not (missing and isinstance(node, dict)):
            continue
        parts.append(part)
    return tuple(parts)


def _key(node: dict[Any, Any], part: int | str) -> Any:
    """The key of `node` that pydantic calls `part`: it knows keys that are numbers as text."""
    return next((key for key in node if key == part or str(key) == str(part)), None)


def _parent(content: Any, place: Location) -> Any:
    node = content
    for part in place[:-1]:
        node = node[_key(node, part)] if isinstance(node, dict) else node[part]
    return node


def _message(kind: type[BaseModel], same: list[Details], parent: Any) -> str:
    first = next((details for details in same if details["type"] in ("too_short", "too_long")), same[0])
    match first["type"]:
        case "extra_forbidden":
            of_kind = f" for kind {parent['kind']}" if isinstance(parent, dict) and "kind" in parent else ""
            return f"unknown key{of_kind}{nearest(str(first['loc'][-1]), _fields(kind, first['loc'][:-1]))}"
        case "union_tag_invalid":
            tags = [tag.strip("' ") for tag in first["ctx"]["expected_tags"].split(",")]
            return f"unknown kind {shown(first['input']['kind'])}{nearest(first['ctx']['tag'], tags)}"
        case "union_tag_not_found":
            return "kind is missing"
        case "missing":
            return "is missing"
        case "too_short":
            return "is empty; it needs at least one entry"
        case "too_long":
            return f"has {first['ctx']['actual_length'] or 'more'} entries; it has at most {first['ctx']['max_length']}"
        case "value_error":
            return str(first["ctx"]["error"])
        case _:
            return f"{_wanted(same)}, not {shown(first['input'])}"


def _wanted(same: list[Details]) -> str:
    """What each member of a union would take: `should be a valid integer, or 'unbounded'`."""
    texts = [
        "should be a section of keys and values"
        if details["type"] in SECTION
        else re.split(", (?:got|unable) ", details["msg"])[0]
        for details in same
        if details["type"] not in SELF_EXPLAINING
    ]
    texts = list(dict.fromkeys(re.sub(r"^(Input|Value) should", "should", text) for text in texts))
    first, *others = texts
    text = ", or ".join([first, *(other.removeprefix("should be ") for other in others)])
    return text[0].lower() + text[1:]


def _fields(kind: type[BaseModel], location: Location) -> list[str]:
    """Field names of the object at `location`, through the schema that pydantic writes for editors."""
    schema = kind.model_json_schema()
    node: Any = schema
    for part in location:
        node = _child(schema, node, part)
    return list(_resolved(schema, node).get("properties", {}))


def _child(schema: Any, node: Any, part: int | str) -> Any:
    node = _resolved(schema, node)
    if part in node.get("properties", {}):
        return node["properties"][part]
    if isinstance(part, int) and "items" in node:
        return node["items"]
    for option in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        option = _resolved(schema, option)
        properties = option.get("properties", {})
        if part in (properties.get("kind", {}).get("const"), option.get("title")):
            return option
        if part in properties:
            return properties[part]
    return node


def _resolved(schema: Any, node: Any) -> Any:
    while "$ref" in node:
        node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
    return node


def nearest(name: str, names: list[str]) -> str:
    """`; nearest: rate`, or all names where none is near."""
    found = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; nearest: {found[0]}" if found else (f"; one of: {', '.join(sorted(names))}" if names else "")
