"""One page that needs no network: HTML with style, scripts and data inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "report_page"
SCRIPTS = (
    *("decode.js", "format.js", "canvas.js", "model.js", "summary.js", "cdfs.js", "breakdown.js"),
    *("lanes.js", "timeline.js", "iteration.js", "requests.js", "gaps.js", "life.js", "page.js"),
)


def page(content: Mapping[str, Any]) -> str:
    """The whole page; the same content gives the same text."""
    scripts = "\n".join(_read(name) for name in SCRIPTS)
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {"title": escape(content["title"]), "style": _read("style.css"), "script": scripts, "data": _inert(data)}
    return _filled(_read("page.html"), parts)


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _inert(data: str) -> str:
    """JSON that cannot end the element that it stands in."""
    return data.replace("<", "\\u003c")


def _filled(template: str, parts: Mapping[str, str]) -> str:
    """Each `{{name}}` once, whatever the parts themselves say."""
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        filled += [parts[name], rest]
    return "".join(filled)
