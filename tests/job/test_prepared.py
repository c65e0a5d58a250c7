"""Environments of required packages, really made, from a wheel that is written here."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.job import prepared as module
from cordee.job.prepared import PrepareError, prepare, prepared
from cordee.testing.patience import wait_until

SOURCE = str(Path(module.__file__).parents[2])


def write_wheel(folder: Path, name: str = "tiny_check_tool", version: str = "1.2") -> Path:
    """Write a wheel with one module, as the wheel format asks for."""
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    files[f"{name}-{version}.dist-info/RECORD"] = record + f"{name}-{version}.dist-info/RECORD,,\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip finds wheels in, and nothing else: no network."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheel(folder)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def version_seen_by(python: Path) -> str:
    command = [str(python), "-c", "import tiny_check_tool; print(tiny_check_tool.VERSION)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_an_environment_that_two_prepare_at_once_is_made_once_and_found_from_then_on(
    index: Path, tmp_path: Path
) -> None:
    into = tmp_path / "environments"
    assert prepared(["tiny-check-tool>=1"], into=into) is None
    program = (
        "import sys; from pathlib import Path; from cordee.job.prepared import prepare; "
        "print(prepare(['tiny-check-tool>=1'], into=Path(sys.argv[1])))"
    )
    command = [sys.executable, "-c", program, str(into)]
    env = {**os.environ, "PYTHONPATH": SOURCE}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    answers = {process.communicate()[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(answers) == 1
    assert len([path for path in into.iterdir() if path.is_dir() and not path.is_symlink()]) == 1
    python = Path(answers.pop().strip())
    assert version_seen_by(python) == "1.2"
    before = python.stat().st_ino, sorted(into.iterdir())
    (index / "tiny_check_tool-1.2-py3-none-any.whl").unlink()
    assert prepare(["tiny-check-tool>=1"], into=into) == python
    assert (python.stat().st_ino, sorted(into.iterdir())) == before
    assert prepared(["tiny-check-tool>=1"], into=into) == python
    assert prepared(["tiny-check-tool>=2"], into=into) is None
    assert prepared(["tiny-check-tool>=1"]) is None


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_an_entry_may_bring_options_of_pip(tmp_path: Path) -> None:
    write_wheel(tmp_path)
    into = tmp_path / "environments"
    entry = ["tiny-check-tool", "--no-index", "--find-links", str(tmp_path)]
    assert version_seen_by(prepare([entry], into=into, index_url="http://127.0.0.1:9/simple")) == "1.2"


@pytest.mark.usefixtures("real")
def test_what_pip_cannot_install_is_an_error_with_its_words_and_leaves_nothing(index: Path, tmp_path: Path) -> None:
    into = tmp_path / "environments"
    with pytest.raises(PrepareError, match="pip cannot install no-such-thing") as caught:
        prepare(["no-such-thing"], into=into)
    assert "No matching distribution found" in caught.value.text
    assert [path.name for path in into.iterdir() if path.suffix != ".lock"] == []


@pytest.mark.usefixtures("real")
def test_a_preparation_that_is_killed_is_made_anew(index: Path, tmp_path: Path) -> None:
    into, made = tmp_path / "environments", tmp_path / "made"
    slow = tmp_path / "python3"
    slow.write_text(
        f'#!/bin/sh\n{sys.executable} "$@" || exit 1\n[ "$3" = venv ] && touch {made} && exec sleep 600\nexit 0\n'
    )
    slow.chmod(0o755)
    program = (
        "import sys; from pathlib import Path; from cordee.job.prepared import prepare; "
        "prepare(['tiny-check-tool'], sys.argv[1], into=Path(sys.argv[2]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(slow), str(into)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        start_new_session=True,
    )
    wait_until(made.exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert prepared(["tiny-check-tool"], into=into) is None
    assert len([path for path in into.iterdir() if path.suffix != ".lock"]) == 1
    assert version_seen_by(prepare(["tiny-check-tool"], into=into)) == "1.2"
    (abandoned,) = [path for path in into.iterdir() if path.is_dir() and not (path / "cordee.json").exists()]
    os.utime(abandoned, (0, 0))
    module._sweep(into, abandoned.name.partition("-")[0])
    assert not abandoned.exists()


@pytest.mark.parametrize("requirements", [[""], [[]], ["-r requirements.txt"], [["--index-url", "x"]], [[1]]])
def test_what_is_no_requirement_is_refused(requirements: list, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a requirement is a package"):
        prepare(requirements, into=tmp_path)


def test_nothing_required_is_nothing_to_prepare(tmp_path: Path) -> None:
    assert prepared([], into=tmp_path) is None
    with pytest.raises(UsageError, match="nothing is required"):
        prepare([], into=tmp_path)


def test_an_interpreter_that_does_not_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(PrepareError, match="does not run"):
        prepare(["x"], python=str(tmp_path / "python"), into=tmp_path)


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PrepareError, match="cannot be used"):
        prepare(["x"], into=tmp_path / "file" / "below")


def test_an_interpreter_is_itself_by_any_name(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    assert module._digest([["x"]], str(other)) == module._digest([["x"]], sys.executable)
    assert module._digest([["x"]], str(other)) != module._digest([["y"]], str(other))
