"""What is seen of a command without running it: who starts the ranks, which script, which Python, shell syntax."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.job.command import commands_on_path, interpreter_path, launches_itself, script_of, shell_words, which


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


def test_a_folder_on_path_that_cannot_be_looked_into_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "tool").touch(mode=0o755)
    refused = f"/{'x' * 300}"  # the file system refuses it, as it does a closed home for those who are not root
    assert which("tool", (), {"PATH": f"{refused}:{tmp_path}"}, tmp_path) == f"{tmp_path}/tool"
    assert which("absent", (), {"PATH": f"{refused}:{tmp_path}"}, tmp_path) is None


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("python3.11 -u -X dev -W ignore train.py", "train.py"),
        ("python -m package.train", None),
        ("python -c pass", None),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py x.py", "train.py"),
        ("torchrun --nproc_per_node=2 train.py", "train.py"),
        ("accelerate launch --num_processes 2 train.py", "train.py"),
        ("mpirun -n 2 python train.py", "train.py"),
        ("env A=1 python train.py", "train.py"),
        ("numactl -N 0 python train.py", "train.py"),
        ("./train.py", "./train.py"),
        ("bash train.sh", None),
        ("python", None),
        ("env A=1", None),
    ],
)
def test_the_script_of_a_command_is_found(command: str, script: str | None) -> None:
    assert script_of(tuple(command.split())) == script


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun train.py", True),
        ("/opt/bin/accelerate launch train.py", True),
        ("mpirun python train.py", True),
        ("python -m torch.distributed.run train.py", True),
        ("python train.py", False),
        ("python torchrun.py", False),
        ("bash run-with-torchrun.sh", False),
    ],
)
def test_a_launcher_starts_the_ranks_by_itself(command: str, expected: bool) -> None:
    assert launches_itself(tuple(command.split())) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cd src && torchrun --nproc-per-node=4 train.py", True),
        ("exec python -m torch.distributed.run train.py", True),
        ("python train.py", False),
    ],
)
def test_a_launcher_in_a_shells_command_line_counts_too(line: str, expected: bool) -> None:
    assert launches_itself(("bash", "-c", line)) is expected
    assert launches_itself(("/bin/sh", "-lc", line)) is expected


@pytest.mark.parametrize(
    ("run", "word"),
    [
        ("a | b", "|"),
        ("a && b", "&&"),
        ("a || b", "||"),
        ("a; b", ";"),
        ("a &", "&"),
        ("a > log", ">"),
        ("a 2>&1", "2>&1"),
        ("a < in", "<"),
        ("a $HOME", "$HOME"),
        ("a ${HOME}", "${HOME"),
        ('a "$HOME"', "$HOME"),
        ("a $(date)", "$("),
        ("a `date`", "`"),
        ("a data/*.txt", "data/*.txt"),
        ("a file?.txt", "file?.txt"),
        ("a ~/data", "~"),
        ("X=1 a", "X=1"),
    ],
)
def test_shell_syntax_is_found(run: str, word: str) -> None:
    assert shell_words(run)[0][0] == word


@pytest.mark.parametrize(
    "run",
    [
        "python train.py --lr 0.1 --name=x",
        "a '*.txt' \"b|c\" '$HOME' \\$HOME",
        "a --filter 'x > 3 && y' --json '{\"a\": [1]}'",
        "bash -c 'a | b > $HOME'",
        "/bin/sh run.sh *.txt",
        "a --url=http://host:1/x --mail x@y --pct 5%",
        "a --resume {checkpoint}",
        "a b~c",
        ["a", "|", "b"],
        "",
    ],
)
def test_what_is_quoted_or_plain_is_no_syntax(run: object) -> None:
    assert shell_words(run) == []
