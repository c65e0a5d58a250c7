"""The contract of checks: what every one must do, ours and yours.

A folder of checks has one file for each, and a test beside it that subclasses the contract:

```python
class TestDiskSpeed(CheckContract):
    @pytest.fixture
    def case(self, tmp_path):
        return CheckCase(
            "my.disk_speed",
            place=f"{Path(__file__).parent}/disk_speed.py:DiskSpeed",
            parameters={"size": 1 << 20},
            hidden={"request": {"env": {"TMPDIR": str(tmp_path / "none")}}},
        )
```
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import UsageError
from cordee.systems.vetting.node.checks import Check, Comparison, load_check, run_checks
from cordee.systems.vetting.node.checks._base import CAUSES, STATUSES
from cordee.systems.vetting.protocol.values import FORMS

SCOPES = ("node", "device", "link", "user", "site")
_PATIENCE_S = 10.0
_MARK = "CORDEE_CHECK_CONTRACT"


@dataclass(frozen=True)
class CheckCase:
    """One check and what the contract needs to try it.

    Attributes:
        name: what a protocol calls it.
        place: `/path/to/file.py:Class` of a check that is not one of ours.
        parameters: with which it ends within seconds on the machine that tests it.
        request: what else its request holds: `env`, `root`, `run_folder` and the like.
        hidden: `parameters` and `request` on top with which it cannot see what it asks about; None where nothing can hide
            that from it.
    """

    name: str
    place: str | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    hidden: dict[str, dict[str, Any]] | None = None

    def load(self) -> Check:
        """Return the check."""
        return load_check(self.name, {self.name: self.place} if self.place else None)


class CheckContract:
    """What every check must do; a subclass has a fixture `case` that returns a `CheckCase`."""

    @pytest.fixture
    def case(self) -> CheckCase:
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """A folder for the check to run in, with its own folder for temporary files."""
        (tmp_path / "contract" / "tmp").mkdir(parents=True)
        return tmp_path / "contract"

    def test_it_declares_what_it_asks_and_what_it_takes(self, case: CheckCase) -> None:
        check = case.load()
        assert isinstance(check, Check)
        assert check.title.strip().endswith("?"), "its title is a question"
        assert type(check).__doc__, "its docstring says what it does"
        assert check.without_gpu.strip().endswith("."), "it says what it does on a node without GPUs"
        assert check.scope in SCOPES
        assert check.version >= 1
        assert check.deadline_s > 0
        names = [parameter.name for parameter in check.parameters]
        assert len(names) == len(set(names)), "no parameter has the name of another"
        for parameter in check.parameters:
            assert parameter.name.isidentifier()
            assert parameter.kind in FORMS, f"{parameter.name}: its kind is one of {', '.join(FORMS)}"
            assert parameter.what.strip(), f"{parameter.name}: it says what it means"
            assert not (parameter.needed and parameter.default is not None), f"{parameter.name}: needed, or a default"
            if parameter.choices and parameter.default is not None:
                assert parameter.default in parameter.choices
        assert json.loads(json.dumps(check.defaults())) == check.defaults()

    def test_its_result_is_complete_and_can_be_sent(self, case: CheckCase, place: Path) -> None:
        result = run_case(case, place)
        assert json.loads(json.dumps(result)) == result, "it is JSON"
        assert result["check"] == case.name
        assert result["status"] in STATUSES
        assert result["evidence"].strip(), "it says what was seen"
        assert (result["cause"] in CAUSES) == (result["status"] == "unknown"), "unknown has a cause, nothing else has"
        assert result["value"] is None or (isinstance(result["value"], (int, float)) and result["unit"])
        known = {one.name for one in fields(Comparison)}
        for comparison in result["compare"]:
            assert set(comparison) <= known
            assert comparison["kind"] in ("low", "high", "same")
            of = comparison.get("of") or "value"
            assert of == "value" or of in result["facts"], f"it compares {of}, which is not among its facts"

    def test_what_it_cannot_see_is_no_pass(self, case: CheckCase, place: Path) -> None:
        if case.hidden is None:
            return
        result = run_case(case, place, case.hidden)
        assert result["status"] != "pass", result
        assert result["evidence"].strip()

    def test_a_parameter_that_it_does_not_take_is_refused(self, case: CheckCase, place: Path) -> None:
        more = {"parameters": {"no_such_parameter": 1}}
        if case.place is None:
            with pytest.raises(UsageError):
                run_case(case, place, more)
        else:
            assert run_case(case, place, more)["status"] == "unknown"

    def test_it_leaves_no_process_thread_or_file(self, case: CheckCase, place: Path) -> None:
        threads = set(threading.enumerate())
        run_case(case, place)
        assert set(threading.enumerate()) <= threads
        _await_gone(place)
        assert [str(path) for path in place.rglob("*") if path != place / "tmp"] == []

    def test_it_can_be_killed_at_its_deadline(self, case: CheckCase, place: Path) -> None:
        result = run_case(case, place, {"request": {"deadline_s": 0.02}})
        assert result["status"] in STATUSES
        assert result["evidence"].strip()
        _await_gone(place)


def run_case(case: CheckCase, place: Path, more: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """Run the check of a case in a folder, as a node does, and return its result.

    Args:
        case: what to run.
        place: the working folder; its `tmp` is where temporary files go.
        more: `parameters` and `request` on top of the case's.
    """
    more = more or {}
    env = {**os.environ, "TMPDIR": str(place / "tmp"), _MARK: str(place)}
    wanted = {**case.request, **more.get("request", {})}
    env |= {**case.request.get("env", {}), **more.get("request", {}).get("env", {})}
    parameters = {**case.parameters, **more.get("parameters", {})}
    document = {
        "deadline_s": 60.0,
        "workdir": str(place),
        "node": "contract",
        **wanted,
        "env": env,
        "checks": [{"check": case.name, "parameters": parameters}],
        "classes": {case.name: case.place} if case.place else {},
    }
    (result,) = run_checks(document)
    return result


def _await_gone(place: Path) -> None:
    """Wait until no process of the check is left: what is killed needs a moment to end."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        left = _processes(place)
        if not left:
            return
        assert time.monotonic() < until, f"it leaves processes: {left}"
        time.sleep(0.01)


def _processes(place: Path) -> list[str]:
    """Return the processes that were started for a check: by their environment, and our own children that have not ended."""
    mark = f"{_MARK}={place}\0".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit():
                continue
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            forked = parent == str(os.getpid()) and (entry / "cmdline").read_bytes() == _our_command_line()
            if state not in "ZX" and (forked or mark in (entry / "environ").read_bytes()):
                found.append(f"{entry.name} {(entry / 'comm').read_text().strip()}")
        except OSError:
            continue
    return found


def _our_command_line() -> bytes:
    return Path("/proc/self/cmdline").read_bytes()
