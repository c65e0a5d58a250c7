"""Keys are found in a repository's history, and moved out of scripts into files of their own."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib

import pytest

from cordee.core.errors import UsageError
from cordee.systems.scan.moved.move import can_move_keys, move_keys

from . import made_files as made

WANDB = "a3f90b1c2d4e5f60718293a4b5c6d7e8f9012345"
GITHUB = "ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
SHELL = f"""#!/bin/bash
export A_WANDB_API_KEY={WANDB}
export B='{GITHUB}' C="x {GITHUB}"  # {GITHUB}
printf '%s|%s|%s' "$A_WANDB_API_KEY" "$B" "$C"
"""


@pytest.fixture
def store(tmp_path):
    return tmp_path / "config" / "keys"


def test_a_shell_script_reads_its_keys_from_files_and_does_the_same(tmp_path, store):
    script = tmp_path / "job.sh"
    script.write_text(SHELL)
    script.chmod(0o750)
    before = subprocess.run(["bash", script], capture_output=True, text=True, check=True).stdout
    moved = move_keys(script, store)
    assert subprocess.run(["bash", script], capture_output=True, text=True, check=True).stdout == before
    assert script.stat().st_mode & 0o777 == 0o750
    assert [os.stat(file).st_mode & 0o777 for file in moved.files] == [0o600, 0o600]
    assert [words.partition(":")[0] for words in moved.left] == ["line 3"]
    assert WANDB not in script.read_text() + moved.difference
    assert GITHUB not in moved.difference
    assert sorted(tmp_path.glob(".job*")) == []


def test_what_was_changed_is_told_line_by_line_where_the_last_line_does_not_end(tmp_path, store):
    script = tmp_path / "job.sh"
    script.write_text(f"export WANDB_API_KEY={WANDB}")
    told = move_keys(script, store).difference.splitlines()
    assert [line[:7] for line in told[3:]] == ["-export", "+export"]


def test_a_python_script_reads_whole_literals_only(tmp_path, store):
    script = tmp_path / "a.py"
    script.write_bytes(f'key = "{GITHUB}"\r\nprint(key, end="")\r\nu = f"{GITHUB} {{key}}"\r\n'.encode())
    moved = move_keys(script, store)
    assert [words.partition(":")[0] for words in moved.left] == ["line 3"]
    assert subprocess.run(["python3", script], capture_output=True, text=True, check=True).stdout == GITHUB
    assert script.read_bytes().count(b"\r\n") == 3


def test_passwords_are_moved_and_shown_nowhere(tmp_path, store):
    script, password = tmp_path / "a.py", "Xk29dkQw"
    script.write_text(f'import os\ndb_password = "{password}"\nprint(db_password, end="")\n')
    assert can_move_keys(script)
    moved = move_keys(script, store)
    assert (len(moved.files), moved.left) == (1, [])
    assert password not in script.read_text() + moved.difference
    assert subprocess.run(["python3", script], capture_output=True, text=True, check=True).stdout == password


def test_whether_keys_can_be_moved_is_known_before_anything_is_written(tmp_path):
    part, whole, other = tmp_path / "part.py", tmp_path / "whole.py", tmp_path / "conf.json"
    part.write_text(f'a = "{GITHUB}"\nb = "x {GITHUB}"\n')
    whole.write_text(f'a = "{GITHUB}"\n')
    other.write_text(json.dumps({"token": GITHUB}))
    before = {path: path.read_text() for path in tmp_path.iterdir()}
    assert [can_move_keys(path) for path in (part, whole, other, tmp_path / "none.py")] == [False, True, False, False]
    assert {path: path.read_text() for path in tmp_path.iterdir()} == before


JOBS = (
    """\
run = "python train.py"  # here
[env]
WANDB_API_KEY = "{wandb}"
OTHER = "1"
GITHUB_TOKEN = '{github}'
""",
    """\
name = "x"
env = {{ WANDB_API_KEY = "{wandb}",  GITHUB_TOKEN = "{github}", OTHER = "1" }}
run = ["python",
  "train.py"]
setup = [   # first
  "echo ready",
]
""",
)


@pytest.mark.parametrize("document", JOBS)
def test_a_job_document_reads_its_keys_in_set_up_lines(tmp_path, store, document):
    job = tmp_path / "cordee.toml"
    job.write_text(document.format(wandb=WANDB, github=GITHUB))
    before = tomllib.loads(job.read_text())
    moved = move_keys(job, store)
    now = tomllib.loads(job.read_text())
    assert (moved.left, now["env"], len(moved.files)) == ([], {"OTHER": "1"}, 2)
    assert now["setup"][2:] == before.get("setup", [])
    assert {**before, "env": 0, "setup": 0} == {**now, "env": 0, "setup": 0}
    lines = "\n".join([*now["setup"], 'printf "%s %s" "$WANDB_API_KEY" "$GITHUB_TOKEN"'])
    said = subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True).stdout
    assert said.endswith(f"{WANDB} {GITHUB}")
    os.unlink(moved.files[0])
    assert subprocess.run(["bash", "-c", lines], capture_output=True, check=False).returncode == 1
    assert GITHUB not in job.read_text() + moved.difference


def test_keys_elsewhere_in_a_job_document_are_left_and_named(tmp_path, store):
    job = tmp_path / "cordee.toml"
    text = (
        f'run = "python train.py --key {GITHUB}"\n[env]\nA = "x {GITHUB}"\n[on.local.env]\nGITHUB_TOKEN = "{GITHUB}"\n'
    )
    job.write_text(text)
    moved = move_keys(job, store)
    assert [words.partition(":")[0] for words in moved.left] == ["line 1", "line 3", "line 5"]
    assert job.read_text() == text
    edf = tmp_path / "env.toml"
    edf.write_text(f'image = "a"\n[env]\nGITHUB_TOKEN = "{GITHUB}"\n')
    assert move_keys(edf, store).left


def test_the_cells_of_a_notebook_read_their_keys_from_files(tmp_path, store):
    cells = [
        ("code", f'%matplotlib inline\nkey = "{GITHUB}"\nprint(key)'),
        ("code", f"%env WANDB_API_KEY={WANDB}\n!echo {GITHUB} | cat\n"),
        ("code", f'u = f"{GITHUB} {{key}}"\n'),
        ("markdown", f"my key is {GITHUB}"),
    ]
    document = {
        "cells": [
            {"cell_type": kind, "metadata": {}, "outputs": [], "source": source.splitlines(keepends=True)}
            for kind, source in cells
        ],
        "nbformat": 4,
    }
    document["cells"][0]["outputs"] = [{"output_type": "stream", "text": [GITHUB[:9], GITHUB[9:] + "\n"]}]
    notebook = tmp_path / "a.ipynb"
    notebook.write_text(json.dumps(document, indent=1) + "\n")
    moved = move_keys(notebook, store)
    assert [words.partition(":")[0] for words in moved.left] == ["cell 1", "cell 3", "cell 4"]
    now = json.loads(notebook.read_text())
    first, second = ("".join(cell["source"]) for cell in now["cells"][:2])
    told = subprocess.run(
        ["python3", "-c", first.replace("%matplotlib", "#")], capture_output=True, text=True, check=True
    )
    assert (told.stdout, first.splitlines()[0]) == (f"{GITHUB}\n", "%matplotlib inline")
    python, shell = second.splitlines()
    told = subprocess.run(
        ["python3", "-c", python + "; print(os.environ['WANDB_API_KEY'])"], capture_output=True, text=True
    )
    assert told.stdout == f"{WANDB}\n"
    assert subprocess.run(["sh", "-c", shell[1:]], capture_output=True, text=True).stdout == f"{GITHUB}\n"
    assert notebook.read_text().startswith('{\n "cells": [\n')
    assert now["cells"][2:] == document["cells"][2:]


def test_nothing_is_lost_where_it_cannot_be_done(tmp_path, store):
    script = tmp_path / "job.sh"
    script.write_text(SHELL)
    store.parent.mkdir()
    store.write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        move_keys(script, store)
    assert script.read_text() == SHELL
    (tmp_path / "job.yaml").write_text(f'k: "{GITHUB}"')
    (tmp_path / "bad.ipynb").write_text("[1]")
    os.link(script, tmp_path / "other.sh")
    for name in ("job.yaml", "other.sh", "bad.ipynb"):
        with pytest.raises(UsageError):
            move_keys(tmp_path / name, tmp_path / "keys")


@pytest.mark.usefixtures("real")
def test_what_was_committed_once_is_told_with_its_commit(tmp_path):
    def git(*words):
        return subprocess.run(
            ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words],
            check=True,
            capture_output=True,
        ).stdout.decode()

    git("init", "-q")
    (tmp_path / "a b.sh").write_text(f"export WANDB_API_KEY={WANDB}\n")
    git("add", "."), git("commit", "-qm", "one")
    first = git("rev-parse", "HEAD").strip()
    (tmp_path / "a b.sh").write_text("x\n")
    git("commit", "-qam", "two")
    # what the repository's own configuration would run must not run
    (tmp_path / ".git" / "config").open("a").write(
        f'[diff "x"]\n\ttextconv = touch {tmp_path}/canary;cat\n[core]\n\tfsmonitor = touch {tmp_path}/canary\n'
    )
    (tmp_path / ".gitattributes").write_text("* diff=x\n")
    result = made.cordee("scan", tmp_path, "--history", "--json")
    document = json.loads(result.output)
    assert result.exit_code == 1
    assert [(one["path"], one["rule"], one["where"]) for one in document["findings"]] == [
        ("a b.sh", "secret-wandb", f"commit {first[:12]}")
    ]
    assert not (tmp_path / "canary").exists()
    assert made.cordee("scan", "/proc/self/fdinfo", "--history").exit_code == 2
