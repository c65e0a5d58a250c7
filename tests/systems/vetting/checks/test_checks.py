"""Checks, really run in their own processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import UsageError
from cordee.runs.plan import RunVet
from cordee.systems.vetting.node import checks
from cordee.systems.vetting.node.checks import CHECKS, Check, load_check, run_checks
from cordee.systems.vetting.node.checks._base import Context, Parameter, Result
from cordee.systems.vetting.node.judge.verdict import verdict
from cordee.systems.vetting.node.preparation import checks_for

SOURCE = str(Path(checks.__file__).parents[5])
VET = RunVet(min_memory_bytes=1 << 20, min_disk_bytes=1 << 20)


class Stuck(Check):
    name = "test.stuck"
    parameters = (Parameter("pid_file", "text", "where to write who runs"),)

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        child = subprocess.Popen(["sleep", "600"])
        Path(parameters["pid_file"]).write_text(f"{os.getpid()} {child.pid}")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
        raise AssertionError("unreachable")


class Broken(Check):
    name = "test.broken"

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        raise OSError(5, "Input/output error")


class Crashing(Check):
    name = "test.crashing"

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


@pytest.fixture(autouse=True)
def more_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Stuck, Broken, Crashing):
        monkeypatch.setitem(CHECKS, kind.name, f"{__name__}:{kind.__name__}")


def one(check: str, parameters: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"check": check}
    if parameters is not None:
        entry["parameters"] = parameters
    (result,) = run_checks({"checks": [entry], "deadline_s": 20, **request})
    assert result["check"] == check
    return result


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_a_healthy_node_passes_what_a_plan_asks_for(tmp_path: Path) -> None:
    vet = VET._replace(commands=("sh",), modules=("json",))
    wanted = checks_for(vet, str(tmp_path), sys.executable)
    results = run_checks({"checks": wanted, "deadline_s": 20, "workdir": str(tmp_path)})
    assert [result["check"] for result in results] == [entry["check"] for entry in wanted]
    assert {result["status"] for result in results if result["check"] != "host.load"} == {"pass"}
    assert list(tmp_path.iterdir()) == []
    for result in results:
        assert json.loads(json.dumps(result)) == result
        assert result["evidence"]
        assert result["version"] == 1


def test_a_plan_without_commands_and_modules_asks_for_no_such_checks() -> None:
    wanted = [entry["check"] for entry in checks_for(VET, "/run", "python")]
    assert wanted == ["host.memory", "host.disk", "host.load"]


def test_too_little_memory_or_disk_fails_with_both_numbers(tmp_path: Path) -> None:
    for check in ("host.memory", "host.disk"):
        result = one(check, {"min_bytes": 1 << 60}, run_folder=str(tmp_path))
        assert result["status"] == "fail"
        assert result["value"] < result["threshold"] == 1 << 60
        assert "needed" in result["evidence"]


def test_a_folder_that_is_gone_fails_with_its_name(tmp_path: Path) -> None:
    result = one("host.disk", {"run_folder": str(tmp_path / "gone")})
    assert result["status"] == "fail"
    assert result["evidence"] == f"run folder {tmp_path}/gone: No such file or directory"


def test_a_file_in_place_of_a_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot write: Not a directory" in one("host.disk", {"run_folder": str(tmp_path / "file")})["evidence"]


@pytest.mark.parametrize("place", ["/proc/self", "/sys"])
def test_a_file_system_that_takes_no_files_fails(place: str) -> None:
    result = one("host.disk", {"run_folder": place})
    assert result["status"] == "fail"
    assert "cannot write" in result["evidence"]


def test_a_full_disk_fails_though_it_still_opens_files(tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys, json\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from cordee.systems.vetting.node.checks.host.disk import _write_fault\n"
        "print(_write_fault(sys.argv[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_the_temporary_folder_of_the_ranks_is_looked_at(tmp_path: Path) -> None:
    result = one("host.disk", env={"TMPDIR": str(tmp_path / "none")})
    assert result["evidence"] == f"temporary folder {tmp_path}/none: No such file or directory"


def test_load_makes_a_machine_busy_by_itself_and_fails_only_where_a_limit_is_given() -> None:
    assert one("host.load", {"warn_ratio": 1e9})["status"] == "pass"
    busy = one("host.load", {"warn_ratio": -1})
    assert (busy["status"], busy["cause"]) == ("unknown", "busy")
    assert busy["evidence"].startswith("the machine is busy: load ")
    assert one("host.load", {"max_ratio": -1.0})["status"] == "fail"
    assert one("host.load", {"max_ratio": 1e9, "warn_ratio": 1e9})["status"] == "pass"


def test_commands_are_looked_up_where_the_ranks_will_look(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "tool"
    tool.write_text("#!/bin/sh\n")
    env = {"PATH": str(tmp_path / "bin")}
    closed = one("host.commands", {"commands": ["tool"]}, env=env)
    assert (closed["status"], closed["evidence"]) == ("fail", f"tool is not executable ({tool})")
    tool.chmod(0o755)
    found = one("host.commands", {"commands": ["tool", "bin/tool"]}, env=env, workdir=str(tmp_path))
    assert found["status"] == "pass"
    missing = one("host.commands", {"commands": ["tool", "ls", "./no"]}, env=env, workdir=str(tmp_path))
    assert missing["evidence"] == "ls is not on PATH; ./no is not there"
    assert missing["value"] == 2


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "good_module.py").write_text("print('noise on standard output')\n__version__ = '3.4'\n")
    (tmp_path / "bad_module.py").write_text("raise OSError('libfancy.so.1: cannot open shared object file')\n")
    (tmp_path / "exiting_module.py").write_text("import os\nos._exit(7)\n")
    (tmp_path / "crashing_module.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "stuck_module.py").write_text("import time\ntime.sleep(600)\n")
    return tmp_path


def importing(folder: Path, *names: str, python: str = sys.executable, **request: Any) -> dict[str, Any]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
    return one("host.modules", {"modules": list(names), "python": python}, env=env, workdir=str(folder), **request)


def test_a_module_that_can_be_imported_passes_with_its_version(modules: Path) -> None:
    result = importing(modules, "good_module", "json")
    assert result["status"] == "pass"
    assert "good_module 3.4, json" in result["evidence"]


def test_a_module_that_is_there_but_cannot_be_loaded_fails_with_its_words(modules: Path) -> None:
    result = importing(modules, "bad_module", "good_module", "no_such_module")
    assert result["status"] == "fail"
    assert "bad_module: OSError: libfancy.so.1: cannot open shared object file" in result["evidence"]
    assert "no_such_module: ModuleNotFoundError" in result["evidence"]
    assert (result["value"], result["threshold"]) == (1, 3)


def test_a_module_that_ends_the_interpreter_fails_by_name(modules: Path) -> None:
    assert (
        "exiting_module: importing it ended the interpreter with exit code 7"
        in (importing(modules, "good_module", "exiting_module")["evidence"])
    )
    assert "ended the interpreter with SIGSEGV" in importing(modules, "crashing_module")["evidence"]


def test_a_module_that_never_ends_importing_is_unknown_by_name_and_left_behind_by_nobody(modules: Path) -> None:
    result = importing(modules, "good_module", "stuck_module", deadline_s=1.2)
    assert result["status"] == "unknown"
    assert "importing stuck_module did not end" in result["evidence"]
    assert not [
        entry
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and is_running(int(entry.name)) and b"stuck_module" in _command_line(entry)
    ]


def test_the_interpreter_is_that_of_the_ranks_command(modules: Path) -> None:
    real = modules / "python3"
    real.symlink_to(sys.executable)
    script = modules / "torchrun"
    script.write_text(f"#!{real}\n")
    script.chmod(0o755)
    assert importing(modules, "json", python=str(script))["evidence"].startswith(f"{real}: ")
    assert importing(modules, "json", python="./python3")["evidence"].startswith(f"{modules}/./python3: ")


def test_no_python_at_all_is_unknown(tmp_path: Path) -> None:
    result = one("host.modules", {"modules": ["json"], "python": "python"}, env={"PATH": str(tmp_path)})
    assert result["status"] == "unknown"


def test_a_stuck_check_is_killed_with_its_children_and_the_others_still_answer(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    started = time.monotonic()
    stuck, memory = run_checks(
        {
            "checks": [
                {"check": "test.stuck", "parameters": {"pid_file": str(pid_file)}},
                {"check": "host.memory", "parameters": {"min_bytes": 1}},
            ],
            "deadline_s": 1.0,
        }
    )
    assert time.monotonic() - started < 60
    assert (stuck["status"], memory["status"]) == ("unknown", "pass")
    assert stuck["evidence"].startswith("did not end within 1 s and was killed; it was at: File")
    assert stuck["cause"] == "timeout"
    assert any("in run" in line for line in stuck["facts"]["stack"])
    assert any("sleep 600" in line for line in stuck["facts"]["stack"])
    deadline = time.monotonic() + 60
    while any(is_running(int(pid)) for pid in pid_file.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_check_that_breaks_or_crashes_is_unknown_with_the_reason() -> None:
    assert one("test.broken")["evidence"] == "the check broke: OSError: [Errno 5] Input/output error"
    crashed = one("test.crashing")
    assert (crashed["status"], crashed["evidence"]) == ("unknown", "its process was killed by SIGKILL")


def test_a_mistyped_check_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    pid_file = tmp_path / "pids"
    with pytest.raises(UsageError, match=r"host\.memry") as caught:
        run_checks(
            {
                "checks": [
                    {"check": "test.stuck", "parameters": {"pid_file": str(pid_file)}},
                    {"check": "host.memry"},
                ]
            }
        )
    assert caught.value.next == "did you mean host.memory?"
    assert not pid_file.exists()


@pytest.mark.parametrize(
    "request_document",
    [
        [],
        {},
        {"checks": {}},
        {"checks": [{}]},
        {"checks": [{"check": "host.memory", "parameters": {"min_byte": 1}}]},
        {"checks": [{"check": "host.memory", "parameters": [1]}]},
        {"checks": [{"check": "host.memory", "requred": True}]},
        {"checks": [], "deadline_s": "soon"},
        {"checks": [], "deadline_s": 0},
        {"checks": [], "asked_at": "now"},
        {"checks": [], "deadlines": 3},
    ],
)
def test_a_request_that_is_wrong_is_refused(request_document: Any) -> None:
    with pytest.raises(UsageError):
        run_checks(request_document)


def command(request: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cordee.systems.vetting.node.checks"],
        input=request,
        env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_deadline_counts_from_when_it_was_asked() -> None:
    result = one("host.memory", {"min_bytes": 1}, asked_at=time.monotonic() - 21)
    assert (result["status"], result["cause"]) == ("unknown", "timeout")
    assert "no time was left of the 20 s" in result["evidence"]
    assert one("host.memory", {"min_bytes": 1}, asked_at=time.monotonic() - 5)["status"] == "pass"
    assert one("host.memory", {"min_bytes": 1}, asked_at=time.monotonic() + 1e6)["status"] == "pass"


def test_the_command_writes_one_line_per_check() -> None:
    request = {"checks": [{"check": "host.memory"}, {"check": "host.load"}], "deadline_s": 5}
    done = command(json.dumps(request))
    assert done.returncode == 0
    assert {json.loads(line)["check"] for line in done.stdout.splitlines()} == {"host.memory", "host.load"}


@pytest.mark.parametrize("request_text", ["", "{", '{"checks": [{"check": "host.nothing"}]}'])
def test_the_command_says_what_is_wrong_with_a_request(request_text: str) -> None:
    done = command(request_text)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert done.stderr


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["pass", "pass"], "healthy"),
        (["pass", "skip"], "healthy"),
        (["pass", "warn"], "suspect"),
        (["warn", "unknown"], "unknown"),
        (["unknown", "fail", "warn"], "bad"),
        (["pass", "odd"], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_verdict_follows_from_the_worst_result(statuses: list[str], expected: str) -> None:
    assert verdict([{"status": status} for status in statuses]) == expected


@pytest.mark.parametrize("status", ["fail", "unknown"])
def test_what_is_not_required_makes_a_node_suspect_at_most(status: str) -> None:
    assert verdict([{"status": "pass"}, {"status": status, "required": False}]) == "suspect"


def test_required_travels_from_the_request_to_the_result() -> None:
    (result,) = run_checks({"checks": [{"check": "test.broken", "required": False}]})
    assert result["required"] is False


def test_every_check_in_the_table_can_be_loaded_and_bears_its_name() -> None:
    assert {name: load_check(name).name for name in CHECKS} == {name: name for name in CHECKS}


def _command_line(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""
