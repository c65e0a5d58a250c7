"""Every check of ours fulfils the contract that checks of other people are held to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.checks import CHECKS
from cordee.testing.checks import CheckCase, CheckContract

SOURCE = str(Path(__file__).parents[4] / "src")
# With these a check ends at once; the others do without.
QUICK: dict[str, dict[str, Any]] = {
    "command": {"command": "true"},
    "gpu.allreduce": {"seconds": 0.02, "payload": 1 << 16},
    "gpu.cuda": {"device": "cpu", "count": 1000},
    "gpu.gemm": {"seconds": 0.02, "size": 128},
    "gpu.memory_bandwidth": {"seconds": 0.02, "size": 1 << 20},
    "gpu.nvlink": {"seconds": 0.05},
    "host.commands": {"commands": ["sh"]},
    "host.environment": {"expected": {"PATH": None}},
    "host.internet": {"host": "127.0.0.1", "port": 9},
    "host.modules": {"modules": ["json"]},
    "host.processes": {"stuck": 0.05},
    "link.errors": {"seconds": 0.05},
    "storage.read": {"bytes": 1 << 20},
}
# What hides from a check what it asks about, where an empty host and an environment without anything do not.
HIDDEN: dict[str, dict[str, dict[str, Any]] | None] = {
    "gpu.cuda": {"parameters": {"device": "gpu"}},
    "host.load": None,  # asked from the kernel by a call, as are the next two
    "host.memory": None,
    "host.clock": None,
    "host.environment": {"parameters": {"expected": {"NO_SUCH_VARIABLE": None}}},
    "host.disk": {"request": {"env": {"TMPDIR": "/no/such/folder"}}},
    "storage.free": {"parameters": {"paths": ["/no/such/folder"]}},
    "storage.mount": {"parameters": {"paths": ["/no/such/folder"]}},
    "storage.read": {"parameters": {"folder": "/no/such/folder"}},
}


@pytest.fixture(params=sorted(CHECKS))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> CheckCase:
    name = request.param
    (tmp_path / "empty").mkdir()
    nothing = {"request": {"root": str(tmp_path / "empty"), "env": {"PATH": str(tmp_path / "empty")}}}
    return CheckCase(name, parameters=QUICK.get(name, {}), hidden=HIDDEN.get(name, nothing))


class TestOurs(CheckContract):
    @pytest.fixture
    def case(self, case: CheckCase) -> CheckCase:
        return case


BAD = """
from __future__ import annotations
import os, subprocess, tempfile
from cordee.systems.vetting.node.checks import Check, Parameter

class Bad(Check):
    title = "It says something."
    parameters = (Parameter("least", "amount", "least amount"),)

    def run(self, parameters, context):
        subprocess.Popen(["sleep", "60"], start_new_session=True)
        tempfile.mkstemp(dir=context.temporary)
        return self.result("pass", "", value=3)
"""
BAD_TEST = """
import pytest
from cordee.testing import checks
from cordee.testing.checks import CheckCase, CheckContract

class TestBad(CheckContract):
    @pytest.fixture
    def case(self, monkeypatch):
        monkeypatch.setattr(checks, "_PATIENCE_S", 0.2)
        return CheckCase("my.bad", place="{place}", hidden={{"request": {{"root": "/none"}}}})
"""


@pytest.mark.usefixtures("real")
def test_the_contract_finds_what_is_wrong_with_a_check(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "test_bad.py").write_text(BAD_TEST.format(place=f"{tmp_path}/bad.py:Bad"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "test_bad.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and f"_CONTRACT={tmp_path}".encode() in _environment_of(process):
            os.kill(int(process.name), signal.SIGKILL)
    failed = {
        line.partition(" - ")[0].rpartition("::")[2] for line in done.stdout.splitlines() if line.startswith("FAILED")
    }
    assert failed >= {
        "test_it_declares_what_it_asks_and_what_it_takes",
        "test_its_result_is_complete_and_can_be_sent",
        "test_what_it_cannot_see_is_no_pass",
        "test_it_leaves_no_process_thread_or_file",
    }, done.stdout


def _environment_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
