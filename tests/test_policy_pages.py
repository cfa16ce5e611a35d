"""docs/policies.md keeps up with the policies: a section each, their rules and knobs, figures that can be had again."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field

import sim.policy_pages as pages
from policies import POLICIES, DecodeFirst, ModalityClasses
from policies.builder import PlanBuilder
from policies.policy import Policy
from sim import Scenario
from sim.policy_figures import Runs, figures, overview, run_suite, suite
from sim.policy_text import kind_of, knobs, page_of
from workloads.errors import InputError

KINDS = [kind_of(policy) for policy in POLICIES]
COMMITTED = pages.PAGE.read_text()
SCENARIOS = suite(pages.SUITE)


class Told(Policy):
    """Does nothing."""

    kind: Literal["told"] = "told"
    source: ClassVar[str] = "this test"

    on_the_line: int = 1  # said on its line
    # said above,
    # in two lines
    above: int = 2
    within: Annotated[
        int,
        Field(ge=0),  # said inside
    ] = 3
    described: int = Field(default=4, description="described")

    def schedule(self, builder: PlanBuilder) -> None: ...


class Heir(Told):
    """Has a knob of its own besides those it inherits."""

    own: bool = True  # its own


class Silent(Policy):
    """Has a knob of which nothing is said."""

    kind: Literal["silent"] = "silent"
    source: ClassVar[str] = "this test"

    mute: int = 1

    def schedule(self, builder: PlanBuilder) -> None: ...


def test_every_policy_has_its_section() -> None:
    assert re.findall(r"^## (\w+)$", COMMITTED, re.MULTILINE) == KINDS
    assert len(re.findall(r"^\*\*Wins\*\*", COMMITTED, re.MULTILINE)) == len(KINDS)


def test_the_page_says_what_the_policies_say() -> None:
    """All but the figures; `python -m sim.policy_pages` makes it anew."""
    today = pages.page(pages.sections(), SCENARIOS, None)
    assert pages.without_figures(COMMITTED) == pages.without_figures(today)


@pytest.fixture(scope="module")
def light() -> Runs:
    return run_suite([path for path in SCENARIOS if path.stem == "light_mix"], POLICIES)


@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_are_those_of_today(kind: str, light: Runs) -> None:
    section = COMMITTED.split(f"\n## {kind}\n")[1].split("\n## ")[0]
    assert figures(light, kind).splitlines()[-1] in section.splitlines()


def test_a_policy_without_text_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = shutil.copytree(pages.TEXTS, tmp_path / "policies")
    (texts / "decode_first.md").unlink()
    monkeypatch.setattr(pages, "sections", lambda: [pages.Section(policy, texts) for policy in POLICIES])
    monkeypatch.setattr(sys, "argv", ["policy_pages", "--out", str(tmp_path / "page.md")])
    with pytest.raises(SystemExit) as exit:
        pages.main()
    error = capsys.readouterr().err
    assert exit.value.code == 2 and not (tmp_path / "page.md").exists()
    assert error.count("\n") == 1 and "decode_first.md: policy decode_first has no text yet" in error


@pytest.mark.parametrize("mark", ["```", "**Wins**", "**Loses**"])
def test_a_text_that_lacks_a_part_is_refused(mark: str, tmp_path: Path) -> None:
    text = (pages.TEXTS / "decode_first.md").read_text()
    (tmp_path / "decode_first.md").write_text(text.replace(mark, ""))
    with pytest.raises(InputError, match=r"decode_first\.md: lacks "):
        page_of(DecodeFirst, tmp_path)


def test_the_command_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], light: Runs
) -> None:
    monkeypatch.setattr(pages, "run_suite", lambda *_: light)
    monkeypatch.setattr(sys, "argv", ["policy_pages", "--out", str(tmp_path / "page.md")])
    pages.main()
    assert capsys.readouterr().out == f"{tmp_path / 'page.md'}: {len(KINDS)} policies, {len(SCENARIOS)} scenarios\n"
    assert overview(light) in (tmp_path / "page.md").read_text()
    monkeypatch.setattr(sys, "argv", ["policy_pages", "--out", str(tmp_path / "nowhere" / "page.md")])
    with pytest.raises(SystemExit) as exit:
        pages.main()
    assert exit.value.code == 2 and "cannot be written" in capsys.readouterr().err


def test_knobs_are_described_by_their_comments() -> None:
    said = [("on_the_line", "said on its line", "1"), ("above", "said above, in two lines", "2")]
    said += [("within", "said inside", "3"), ("described", "described", "4")]
    assert [tuple(knob) for knob in knobs(Told)] == said
    assert [tuple(knob) for knob in knobs(Heir)] == [*said, ("own", "its own", "true")]
    with pytest.raises(InputError, match=r"Silent\.mute has no comment"):
        knobs(Silent)


def test_a_knob_of_several_parts_is_told_part_by_part() -> None:
    first = knobs(ModalityClasses)[0]
    assert first == ("text.weight", "points of requests without items: at arrival", "4")


def test_changes_are_against_the_baseline_and_stalls_are_said() -> None:
    stall = run_suite([pages.ROOT / "scenarios" / "deadlock.yaml"], POLICIES)
    assert "%" not in figures(stall, "footprint")
    assert "`deadlock`, stalled: 1 of 3 finished" in figures(stall, "head_of_line")
    assert "none / none, stalled: 0 of 3 finished" in overview(stall)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_of_the_suite_says_what_to_look_at(path: Path) -> None:
    text = path.read_text()
    comment = text[: text.index("\nname: ")]
    assert all(line.startswith("#") for line in comment.splitlines())
    assert "# Look at: " in comment and f"#   tandem run scenarios/policies/{path.name}" in comment
    assert Scenario.load(path).name == path.stem
