"""The script for GPU machines, as far as it can be tested in a second: no step stops it, and its table says so."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sim import run as simulate

SCRIPT = Path(__file__).parent / "gpu" / "run.sh"
pytestmark = pytest.mark.skipif(shutil.which("timeout") is None, reason="the script needs bash and coreutils")


def run(folder, limit, *arguments, python=sys.executable):
    env = os.environ | {"OUT": str(folder), "LIMIT": str(limit), "PYTHON": str(python)}
    return subprocess.run(["bash", SCRIPT, *arguments], env=env, capture_output=True, text=True)


def test_without_time_every_step_is_named_and_the_table_written(tmp_path):
    done = run(tmp_path, 0, "--rehearse")
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table.txt").read_text()
    assert done.stdout.endswith(table)
    names = {line.split()[0] for line in table.splitlines() if "no time left" in line}
    assert names >= {"install", "kernels", "exactness", "graphs", "calibrate-tiny", "replay-photos", "replay-chat"}
    assert names >= {"allocator", "storage-per_item", "storage-rows", "peers"}


def test_failing_steps_do_not_stop_the_others(tmp_path):
    """A Python that fails at everything but the table."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncase "$1" in *summary.py) exec {sys.executable} "$@" ;; esac\nexit 7\n')
    python.chmod(0o755)
    done = run(tmp_path / "out", 400, "--rehearse", python=python)
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "out" / "table.txt").read_text().splitlines()
    failed = {line.split()[0] for line in table if "exit code" in line}
    assert failed >= {"install", "kernels", "exactness", "graphs", "calibrate-tiny", "storage-rows", "peers"}
    with tarfile.open(tmp_path / "out" / "results.tar.gz") as archive:
        assert "./logs/kernels.log" in archive.getnames()


def test_other_arguments_are_refused(tmp_path):
    done = run(tmp_path, 0, "--fast")
    assert done.returncode == 2 and "usage" in done.stderr


@pytest.mark.parametrize("name", ["photos", "chat"])
def test_its_scenarios_run(name):
    requests = simulate(SCRIPT.parent / "scenarios" / f"{name}.yaml").requests
    assert set(requests.status) == {"finished"} and requests.num_items.sum() > 0
