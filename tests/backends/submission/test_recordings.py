"""What the fake commands replay is what Slurm says."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cordee.testing.slurm import DisposableSlurm

from .sites import COMMANDS, FAKES

RECORDED = json.loads((FAKES / "recorded.json").read_text())
CASES = [(command, case) for command in COMMANDS for case in RECORDED[command]]


def said(command: str, case: str, words: dict[str, str], **env: str) -> dict[str, object]:
    """Return what a command really says, with the names of jobs and files as the recording has them."""
    argv = RECORDED[command][case]["argv"]
    for name, value in words.items():
        argv = [word.replace(name, value) for word in argv]
    done = subprocess.run([command, *argv], capture_output=True, text=True, env={**os.environ, **env}, check=False)
    return {"code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def recorded(command: str, case: str, words: dict[str, str]) -> dict[str, object]:
    found = {"code": 0, "stdout": "", "stderr": "", **RECORDED[command][case]}
    del found["argv"]
    return json.loads(json.dumps(found).replace("JOB", words["JOB"]))


class TestRecordings:
    @pytest.fixture
    def words(self, slurm: DisposableSlurm, tmp_path: Path) -> dict[str, str]:
        """A script, and a job of it that waits."""
        script = tmp_path / "script"
        script.write_text("#!/bin/sh\n#SBATCH --begin=now+1hour --comment=cordee:recorded --output=/dev/null\n")
        return {"SCRIPT": str(script), "JOB": slurm.command("sbatch", "--parsable", str(script)).strip()}

    @pytest.mark.parametrize(("command", "case"), [(command, case) for command, case in CASES if case != "away"])
    def test_an_answer_is_as_it_was_recorded(self, slurm, words, command, case):
        expected = {**words, "JOB": str(int(words["JOB"]) + 1)} if case == "accepted" else words
        assert said(command, case, words) == recorded(command, case, expected)

    def test_a_controller_that_is_away_is_as_it_was_recorded(self, slurm, words):
        commands = [command for command, case in CASES if case == "away" and command != "sacct"]
        env = slurm.impatient()
        slurm.stop_controller()
        with ThreadPoolExecutor(len(commands)) as pool:
            answers = list(pool.map(lambda command: said(command, "away", words, **env), commands))
        assert answers == [recorded(command, "away", words) for command in commands]

    def test_an_accounting_that_is_away_is_as_it_was_recorded(self, slurm, words, tmp_path):
        lines = [line for line in slurm.conf.read_text().splitlines() if not line.startswith("AccountingStorage")]
        lines += ["AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=127.0.0.1"]
        (tmp_path / "slurm.conf").write_text("\n".join([*lines, "AccountingStoragePort=1", ""]))
        (tmp_path / "gres.conf").write_text(slurm.conf.with_name("gres.conf").read_text())
        answer = said("sacct", "away", words, SLURM_CONF=str(tmp_path / "slurm.conf"))
        assert answer == recorded("sacct", "away", words)
