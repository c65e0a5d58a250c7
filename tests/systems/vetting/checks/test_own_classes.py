"""Classes of the user's, each in a process and an interpreter of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.vetting.node.checks import run_checks
from cordee.systems.vetting.node.checks.programs.installed import is_installed
from support.hosts.interpreters import write_interpreter

GOOD = """
from __future__ import annotations
from cordee.systems.vetting.node.checks import CannotTest, Check, Context, Parameter, Result
import helper
print("noise on standard output")

class Good(Check):
    name = "my.good"
    title = "Is the number large enough?"
    parameters = (Parameter("least", "number", "least number", default=3), Parameter("number", "number", "what it is"))

    def run(self, parameters, context):
        print("more noise")
        number = parameters.get("number")
        if number is None:
            raise CannotTest("there is no number", "absent")
        status = "pass" if number >= parameters["least"] else "fail"
        return self.result(status, f"{helper.WORD} {number} on {context.node}", value=number, unit="things")

class Breaks(Check):
    def run(self, parameters, context):
        raise OSError("broken")

class Strange(Check):
    def run(self, parameters, context):
        return self.result("splendid", "so it is")

class Stuck(Check):
    def run(self, parameters, context):
        import time
        while True:
            time.sleep(600)

class Sees(Check):
    def run(self, parameters, context):
        import sys
        return self.result("pass", sys.executable, facts={"torch": "torch" in sys.modules})

class NoCheck:
    pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_checks.py").write_text(GOOD)
    (tmp_path / "helper.py").write_text("WORD = 'number'\n")
    return tmp_path


def one(folder: Path, name: str, parameters: dict[str, Any] | None = None, **request: Any) -> dict[str, Any]:
    document = {
        "checks": [{"check": f"my.{name}", "name": "mine", "parameters": parameters or {}}],
        "classes": {f"my.{name}": f"{folder}/my_checks.py:{name}"},
        "deadline_s": 20,
        **request,
    }
    (result,) = run_checks(document)
    assert json.loads(json.dumps(result)) == result
    assert (result["check"], result["name"]) == (f"my.{name}", "mine")
    return result


def test_a_class_in_a_file_runs_with_its_defaults_and_what_lies_beside_it(folder: Path) -> None:
    result = one(folder, "Good", {"number": 5}, node="n1")
    assert (result["status"], result["value"], result["unit"]) == ("pass", 5, "things")
    assert result["evidence"] == "number 5 on n1"
    assert one(folder, "Good", {"number": 2})["status"] == "fail"


def test_a_class_that_cannot_test_says_why(folder: Path) -> None:
    result = one(folder, "Good")
    assert (result["status"], result["cause"], result["evidence"]) == ("unknown", "absent", "there is no number")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Breaks", "the check broke: OSError: broken"),
        ("Strange", "it says the status 'splendid'"),
        ("NoCheck", "is no cordee.checks.Check"),
        ("Absent", "cannot be loaded: AttributeError"),
    ],
)
def test_a_class_that_is_wrong_is_unknown_by_itself(folder: Path, name: str, words: str) -> None:
    result = one(folder, name)
    assert (result["status"], result["cause"]) == ("unknown", "error")
    assert words in result["evidence"]


def test_a_class_that_cannot_be_loaded_leaves_the_other_checks_alone(tmp_path: Path) -> None:
    (tmp_path / "my_checks.py").write_text("import no_such_module\n")
    broken, memory = run_checks(
        {
            "checks": [{"check": "my.x"}, {"check": "host.memory"}],
            "classes": {"my.x": f"{tmp_path}/my_checks.py:X"},
            "deadline_s": 20,
        }
    )
    assert broken["status"] == "unknown"
    assert "No module named 'no_such_module'" in broken["evidence"]
    assert memory["status"] == "pass"


def test_a_mistyped_parameter_is_unknown_with_its_name(folder: Path) -> None:
    assert "my.Good does not take leest" in one(folder, "Good", {"leest": 3})["evidence"]


@pytest.mark.usefixtures("real")
def test_a_class_that_is_stuck_says_where(folder: Path) -> None:
    result = one(folder, "Stuck", deadline_s=10.0)
    assert (result["status"], result["cause"]) == ("unknown", "timeout")
    assert f"while at running {folder}/my_checks.py:Stuck; it was at: File" in result["evidence"]
    assert "my_checks.py" in " ".join(result["facts"]["stack"])


def test_a_class_runs_in_the_prepared_interpreter(folder: Path) -> None:
    python = write_interpreter(folder / "bin", "import sys\nsys.modules['torch'] = sys\n") / "python3"
    result = one(folder, "Sees", python=str(python))
    assert (result["evidence"], result["facts"]["torch"]) == (sys.executable, True)


def test_requirements_that_the_ranks_interpreter_lacks_are_unknown_with_what_to_do(folder: Path) -> None:
    result = one(
        folder, "Good", {"number": 5}, requirements=["pytest", "no-such-thing>=2", ["nor-this", "--index-url", "x"]]
    )
    assert (result["status"], result["cause"]) == ("unknown", "absent")
    assert "lacks no-such-thing>=2, nor-this: run `cordee vet prepare PROTOCOL`" in result["evidence"]
    assert one(folder, "Good", {"number": 5}, requirements=["pytest>=1"])["status"] == "pass"
    commands = {"checks": [{"check": "command", "parameters": {"command": "true"}}], "requirements": ["no-such-thing"]}
    assert run_checks(commands)[0]["cause"] == "absent"


def test_a_command_finds_the_prepared_interpreter_first(tmp_path: Path) -> None:
    folder = write_interpreter(tmp_path / "bin", "import os\nos.environ['PREPARED'] = 'yes'\n")
    command = ["python3", "-c", "import os; print(os.environ.get('PREPARED'))"]
    document = {"checks": [{"check": "command", "parameters": {"command": command}}], "python": str(folder / "python3")}
    assert run_checks(document)[0]["evidence"] == "python3 ended with 0: yes"


@pytest.mark.parametrize(
    ("requirement", "there"),
    [
        ("pytest", True),
        ("PyTest", True),
        ("pytest[dev]>=1", True),
        ("pytest>=1,<1000", True),
        ("pytest==0.0.1", False),
        ("pytest ; python_version > '3'", True),
        ("pytest @ https://example.org/pytest.whl", True),
        ("./dist/pytest-0.0.1-py3-none-any.whl", False),
        ("no-such-thing", False),
        ("https://example.org/x.tar.gz", False),
    ],
)
def test_what_is_installed_is_told_by_name_and_version(requirement: str, there: bool) -> None:
    assert is_installed(requirement) is there
