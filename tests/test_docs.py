"""The documentation keeps up with the code: every field is described, every example loads, every link leads."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim import Scenario

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def fields() -> set[str]:
    schema: dict[str, Any] = Scenario.model_json_schema()
    return {name for part in (schema, *schema["$defs"].values()) for name in part.get("properties", {})}


def whole_scenarios() -> list[str]:
    """YAML blocks that name a model and a workload; shorter ones are excerpts."""
    blocks = [block for page in PAGES for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)]
    return [block for block in blocks if {"model", "workload"} <= yaml.safe_load(block).keys()]


def test_every_field_is_described() -> None:
    described = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "scenarios.md").read_text()))
    assert not fields() - described


def test_every_example_loads(tmp_path: Path) -> None:
    assert whole_scenarios()
    for index, block in enumerate(whole_scenarios()):
        path = tmp_path / f"example-{index}.yaml"
        path.write_text(block)
        Scenario.load(path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert all((page.parent / target).exists() for target in targets)
