"""Which Python `python` means."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.job.plan.interpreter import commands_on_path, interpreter_path, which


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_environment_is_on_path_already(variable: str) -> None:
    assert interpreter_path({variable: "/x", "PATH": "/bin"}, "/venv", "/usr") == []


def test_the_environment_that_cordee_lives_in_is_meant() -> None:
    assert interpreter_path({"PATH": "/bin"}, "/venv", "/usr") == ["/venv/bin"]
    assert interpreter_path({"PATH": "/venv/bin:/bin"}, "/venv", "/usr") == []


def test_a_plain_python_is_left_to_path() -> None:
    assert interpreter_path({"PATH": "/bin"}, "/usr", "/usr") == []


@pytest.mark.parametrize("mark", ["uv-receipt.toml", "pipx_metadata.json"])
def test_an_environment_made_for_cordee_alone_is_not_meant(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).touch()
    assert interpreter_path({"PATH": "/bin"}, str(tmp_path), "/usr") == []


def test_a_command_is_found_as_the_agent_finds_it(tmp_path: Path) -> None:
    for name in ("one", "two", "job/tools"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("one/tool", "two/tool", "two/python3", "job/own", "job/tools/x"):
        (tmp_path / name).touch(mode=0o755)
    (tmp_path / "job/plain").touch(mode=0o644)
    environ = {"PATH": f"{tmp_path}/two"}
    job = tmp_path / "job"
    assert which("tool", (), environ, job) == f"{tmp_path}/two/tool"
    assert which("tool", (f"{tmp_path}/one",), environ, job) == f"{tmp_path}/one/tool"
    assert which("python", (), environ, job) == f"{tmp_path}/two/python3"
    assert which("./own", (), environ, job) == f"{job}/own"
    assert which("x", (), {"PATH": "tools"}, job) == f"{job}/tools/x"
    assert which("own", (), environ, job) is None
    assert which("./plain", (), environ, job) is None
    assert which("./tools", (), environ, job) is None
    assert commands_on_path((f"{tmp_path}/one", "/nowhere"), environ) == {"tool", "python3"}
