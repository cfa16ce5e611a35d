"""docs/profiles.md keeps up with the profiles: its table of errors, and its example of a price."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cli
from sim import profile_page
from sim.profile_page import BEGIN, END, PAGE, table
from sim.profiles import PROFILES

TEXT = PAGE.read_text()


def test_the_table_is_that_of_the_profiles() -> None:
    assert f"{BEGIN}\n{table()}\n{END}" in TEXT
    assert table().count("\n") == 1 + len(list(PROFILES.glob("*/*.json")))


def test_the_page_is_made_again_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "profiles.md"
    page.write_text(TEXT.replace("| --- |", "| stale |"))
    monkeypatch.setattr(sys, "argv", ["profile_page", "--out", str(page)])
    profile_page.main()
    assert page.read_text() == TEXT


def test_the_example_is_what_the_command_prints() -> None:
    (command,) = re.findall(r"```\ntandem (price .*)\n```", TEXT)
    printed = CliRunner().invoke(cli.app, command.split()).stdout
    lines = [line.rstrip() for line in printed.splitlines()[1:]]
    assert "```\n" + "\n".join(lines) + "\n```" in TEXT
