"""Keys are found in a repository's history, and moved out of scripts into files of their own."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from cordee.core.errors import UsageError
from cordee.systems.scan.move import move_keys

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


def test_a_python_script_reads_whole_literals_only(tmp_path, store):
    script = tmp_path / "a.py"
    script.write_bytes(f'key = "{GITHUB}"\r\nprint(key, end="")\r\nu = f"{GITHUB} {{key}}"\r\n'.encode())
    moved = move_keys(script, store)
    assert [words.partition(":")[0] for words in moved.left] == ["line 3"]
    assert subprocess.run(["python3", script], capture_output=True, text=True, check=True).stdout == GITHUB
    assert script.read_bytes().count(b"\r\n") == 3


def test_nothing_is_lost_where_it_cannot_be_done(tmp_path, store):
    script = tmp_path / "job.sh"
    script.write_text(SHELL)
    store.parent.mkdir()
    store.write_text("in the way")
    with pytest.raises(OSError, match="exists"):
        move_keys(script, store)
    assert script.read_text() == SHELL
    (tmp_path / "job.toml").write_text(f'k = "{GITHUB}"')
    os.link(script, tmp_path / "other.sh")
    for name in ("job.toml", "other.sh"):
        with pytest.raises(UsageError):
            move_keys(tmp_path / name, tmp_path / "keys")


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
