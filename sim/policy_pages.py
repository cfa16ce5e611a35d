"""Makes docs/policies.md: `python -m sim.policy_pages` runs the scenario suite and puts its figures under the texts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from policies import POLICIES
from policies.policy import Policy
from sim.files import writing
from sim.policy_figures import BASELINE, Runs, about, figures, overview, run_suite, suite
from sim.policy_text import kind_of, knobs, page_of, rule, wrapped
from sim.sheet import markdown
from workloads.errors import InputError

ROOT = Path(__file__).parent.parent
PAGE, TEXTS, SUITE = ROOT / "docs" / "policies.md", ROOT / "docs" / "policies", ROOT / "scenarios" / "policies"
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
INTRODUCTION = f"""# Policies

Every scheduling policy: its rule and source, its decisions in pseudocode, its knobs, when it wins and when it loses.

This page is made by `python -m sim.policy_pages` from the policies, from `docs/policies/*.md` and from runs of the
scenarios below, every policy with its defaults. All figures are simulated. In parentheses: changes against
`{BASELINE}`, which serves in order of arrival and never stalls."""


class Section:
    """What a page has of one policy, but for the figures. Raises InputError where a text is missing."""

    def __init__(self, policy: type[Policy], texts: Path) -> None:
        self.kind = kind_of(policy)
        self._parts = [rule(policy), wrapped(f"Source: {policy.source}."), page_of(policy, texts), _knob_table(policy)]

    def written(self, table: str) -> str:
        return "\n\n".join([f"## {self.kind}", *self._parts, _marked(table)])


def sections(policies: Sequence[type[Policy]] = POLICIES, texts: Path = TEXTS) -> list[Section]:
    return [Section(policy, texts) for policy in policies]


def page(written: Sequence[Section], scenarios: Sequence[Path], runs: Runs | None) -> str:
    """The whole page; without runs, all of it but the figures."""
    links = {path: f"- [`{path.stem}`](../scenarios/policies/{path.name}): " for path in scenarios}
    listed = "\n".join(wrapped(link + about(path), indent="  ") for path, link in links.items())
    top = _marked(overview(runs) if runs else "")
    of_policies = [section.written(figures(runs, section.kind) if runs else "") for section in written]
    return "\n\n".join([INTRODUCTION, "## The suite", listed, top, *of_policies]) + "\n"


def without_figures(text: str) -> str:
    """A page's text alone, to compare with that of today's policies."""
    first, *rest = text.split(BEGIN)
    return "".join([first, *(BEGIN + END + part.partition(END)[2] for part in rest)])


def _marked(table: str) -> str:
    return f"{BEGIN}\n{table}\n{END}"


def _knob_table(policy: type[Policy]) -> str:
    rows = [(f"`{knob.name}`", knob.meaning, f"`{knob.default}`") for knob in knobs(policy)]
    return markdown(["knob", "meaning", "default"], rows, words=3) if rows else "No knobs."


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sim.policy_pages", description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE, help="default: docs/policies.md")
    out = parser.parse_args().out
    try:
        written = sections()
        scenarios = suite(SUITE)
        text = page(written, scenarios, run_suite(scenarios, POLICIES))
        with writing(out):
            out.write_text(text)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{out}: {len(written)} policies, {len(scenarios)} scenarios")


if __name__ == "__main__":
    main()
