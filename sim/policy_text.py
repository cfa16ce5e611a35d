"""What is written by hand about a policy: its docstring, its page in docs/policies, and the comments on its knobs."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from policies.policy import Policy
from sim.yaml_text import written
from workloads.errors import InputError

WIDTH = 120  # columns of running text
PARTS = {"pseudocode between ``` and ```": "```\n", "a paragraph **Wins**": "**Wins**", "one **Loses**": "**Loses**"}


class Knob(NamedTuple):
    """An option of a policy as a scenario has it."""

    name: str
    meaning: str
    default: str


def kind_of(policy: type[Policy]) -> str:
    return str(policy.model_fields["kind"].default)


def rule(policy: type[Policy]) -> str:
    """The docstring, as wide as a page of text."""
    paragraphs = inspect.cleandoc(policy.__doc__ or "").split("\n\n")
    return "\n\n".join(map(wrapped, paragraphs))


def wrapped(text: str, indent: str = "") -> str:
    """In lines of running text; all but the first begin with `indent`."""
    words = " ".join(text.split())
    return textwrap.fill(words, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def page_of(policy: type[Policy], folder: Path) -> str:
    """Pseudocode, when it wins and when it loses. Raises InputError where something is missing."""
    path = folder / f"{kind_of(policy)}.md"
    if not path.is_file():
        raise InputError(f"{path}: policy {kind_of(policy)} has no text yet: {', '.join(PARTS)}")
    text = path.read_text().strip()
    missing = [part for part, mark in PARTS.items() if mark not in text]
    if missing:
        raise InputError(f"{path}: lacks {', '.join(missing)}")
    return text


def knobs(policy: type[Policy]) -> list[Knob]:
    """Every option; one with parts of its own gives a knob for each part."""
    found = []
    for name, field in policy.model_fields.items():
        if name == "kind":
            continue
        meaning, default = _meaning(policy, name), field.get_default(call_default_factory=True)
        if isinstance(default, BaseModel):
            parts = type(default).model_fields
            found += [
                Knob(f"{name}.{part}", f"{meaning}: {_meaning(type(default), part)}", written(getattr(default, part)))
                for part in parts
            ]
        else:
            found.append(Knob(name, meaning, "required" if field.is_required() else written(default)))
    return found


def _meaning(model: type[BaseModel], name: str) -> str:
    """A field's description, or the comment on it. Raises InputError where there is neither."""
    if description := model.model_fields[name].description:
        return description
    for owner in model.__mro__:
        if name in inspect.get_annotations(owner) and (comment := _comments(owner).get(name)):
            return comment
    raise InputError(f"{model.__module__}: {model.__name__}.{name} has no comment that says what it means")


def _comments(model: type[Any]) -> dict[str, str]:
    """For each field of a class the comments on its lines, or else those right above."""
    source = textwrap.dedent(inspect.getsource(model))
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT]
    said = {t.start[0]: t.string.lstrip("# ") for t in tokens}
    alone = {t.start[0] for t in tokens if t.line.lstrip().startswith("#")}
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            own = [line for line in range(node.lineno, (node.end_lineno or 0) + 1) if line in said]
            found[node.target.id] = " ".join(said[line] for line in own or _above(node.lineno, alone))
    return found


def _above(line: int, alone: set[int]) -> list[int]:
    """The lines of comments that end right above a line."""
    first = line
    while first - 1 in alone:
        first -= 1
    return [*range(first, line)]
