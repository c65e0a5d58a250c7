"""The snapshot of a job's code: what is copied, what is left out and why, what has changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cordee.runs.folder import RunFolder
from cordee.runs.snapshot import changed_files, snapshot_code


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "package/model.py").write_text("x = 1\n")
    return folder


def _take(job: Path, tmp_path: Path, **more: Any) -> tuple[str, Path, dict[str, Any]]:
    tmp_path.mkdir(exist_ok=True)
    manifest = tmp_path / "code.json"
    digest = snapshot_code(job, tmp_path / "code", manifest, **more)
    return digest, tmp_path / "code", json.loads(manifest.read_text())["files"]


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink())


def test_files_are_copied_with_their_modes_and_listed(job: Path, tmp_path: Path) -> None:
    digest, code, files = _take(job, tmp_path)
    assert _files(code) == ["package/model.py", "run.sh", "train.py"]
    assert os.access(code / "run.sh", os.X_OK)
    assert not os.access(code / "train.py", os.X_OK)
    assert files["train.py"]["size"] == 9
    assert len(files["train.py"]["sha256"]) == 64
    assert digest == _take(job, tmp_path / "again")[0]


def test_a_change_of_content_name_or_mode_changes_the_digest(job: Path, tmp_path: Path) -> None:
    digests = {_take(job, tmp_path / "0")[0]}
    (job / "train.py").write_text("print(2)\n")
    digests.add(_take(job, tmp_path / "1")[0])
    (job / "train.py").chmod(0o755)
    digests.add(_take(job, tmp_path / "2")[0])
    (job / "train.py").rename(job / "trained.py")
    digests.add(_take(job, tmp_path / "3")[0])
    assert len(digests) == 4


def test_logs_and_results_that_a_run_writes_beside_its_code_are_no_change(job: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "code.json"
    outputs = ("run.log", "nohup.out", "metrics.csv", "out.txt", "loss.png", "events.out.tfevents.7.laptop.1", "notes")
    for name in outputs:
        (job / name).write_text("at submission\n")
    (job / "requirements.txt").write_text("torch\n")
    snapshot_code(job, tmp_path / "code", manifest)
    for name in (*outputs, "new.py"):
        (job / name).write_text("later\n")
    assert changed_files(job, manifest) == []
    (job / "requirements.txt").write_text("jax\n")
    assert changed_files(job, manifest) == ["requirements.txt"]


def test_files_that_changed_or_went_are_named(job: Path, tmp_path: Path) -> None:
    os.symlink("train.py", job / "link.py")
    _take(job, tmp_path)
    manifest = tmp_path / "code.json"
    assert changed_files(job, manifest) == []
    (job / "new.py").touch()
    os.utime(job / "train.py")
    assert changed_files(job, manifest) == []
    (job / "train.py").write_text("print(3)\n")
    (job / "package/model.py").unlink()
    (job / "link.py").unlink()
    os.symlink("run.sh", job / "link.py")
    assert changed_files(job, manifest) == ["link.py", "package/model.py", "train.py"]


def test_a_missing_manifest_names_nothing(job: Path, tmp_path: Path) -> None:
    assert changed_files(job, tmp_path / "none.json") == []


def test_caches_environments_runs_and_checkpoints_are_left_out(job: Path, tmp_path: Path) -> None:
    for name in (".git", "__pycache__", ".venv", "runs/x", "checkpoints", "own-env", "conda/conda-meta"):
        (job / name).mkdir(parents=True)
        (job / name / "file").touch()
    (job / "own-env/pyvenv.cfg").touch()
    (job / "x.pyc").touch()
    RunFolder.create(job / "results", "a-1")
    (job / "results/keep.txt").touch()
    _, code, _ = _take(job, tmp_path)
    assert _files(code) == ["package/model.py", "results/keep.txt", "run.sh", "train.py"]


def test_a_snapshot_inside_the_job_is_not_copied_into_itself(job: Path) -> None:
    for name in ("a", "b"):
        run = RunFolder.create(job / "out", name)
        snapshot_code(job, run.code, run.code_manifest)
    assert _files(job / "out/b/code") == ["package/model.py", "run.sh", "train.py"]


def test_large_files_and_what_is_too_much_are_listed_and_not_copied(job: Path, tmp_path: Path) -> None:
    with (job / "big.bin").open("wb") as file:
        file.truncate(10_000_001)
    _, code, files = _take(job, tmp_path, limit_bytes=20)
    assert files["big.bin"] == {"size": 10_000_001, "mode": 0o644, "skipped": "larger than 10000000 bytes"}
    assert _files(code) == ["package/model.py", "run.sh"]
    assert files["train.py"]["skipped"] == "the snapshot would be too large"


def test_too_many_files_are_cut_and_told(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cordee.runs.snapshot.MOST_FILES", 2)
    _, code, files = _take(job, tmp_path)
    assert len(_files(code)) == 2
    assert [name for name, entry in files.items() if "more than 2 files" in entry.get("skipped", "")] == ["train.py"]


def test_links_stay_links_and_never_lead_out(job: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").touch()
    os.symlink("train.py", job / "inside")
    os.symlink("../secret", job / "out")
    os.symlink(str(job / "train.py"), job / "absolute")
    os.symlink("../outside", job / "folder")
    os.symlink("package/../../secret", job / "sly")
    _, code, files = _take(job, tmp_path)
    assert os.readlink(code / "inside") == "train.py"
    assert _files(code) == ["inside", "package/model.py", "run.sh", "train.py"]
    assert {name for name, entry in files.items() if "skipped" in entry} == {"out", "absolute", "folder", "sly"}


def test_what_is_no_file_is_passed_over(job: Path, tmp_path: Path) -> None:
    os.mkfifo(job / "pipe")
    assert "pipe" not in _take(job, tmp_path)[2]


def test_a_file_that_cannot_be_read_is_told(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: Any, *more: Any, **named: Any) -> int:
        if str(path).endswith("train.py"):
            raise PermissionError(13, "Permission denied")
        return real(path, *more, **named)

    monkeypatch.setattr("cordee.runs.snapshot.os.open", refuse)
    _, code, files = _take(job, tmp_path)
    assert files["train.py"] == {"skipped": "cannot be read: Permission denied"}
    assert not (code / "train.py").exists()


def test_names_that_are_not_utf8_survive(job: Path, tmp_path: Path) -> None:
    (job / os.fsdecode(b"bad-\xff.txt")).write_text("x")
    _, code, _ = _take(job, tmp_path)
    assert b"bad-\xff.txt" in os.listdir(os.fsencode(code))
    assert changed_files(job, tmp_path / "code.json") == []


def _git(job: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(job), *words], check=True, capture_output=True)


def test_git_decides_where_there_is_a_repository(job: Path, tmp_path: Path) -> None:
    _git(job, "init")
    (job / ".gitignore").write_text("*.log\nsecret/\n")
    (job / "secret").mkdir()
    (job / "secret/key").touch()
    (job / "x.log").touch()
    (job / "gone.py").touch()
    _git(job, "add", "gone.py")
    (job / "gone.py").unlink()
    RunFolder.create(job / "out", "a-1")
    (job / "out/a-1/plan.json").touch()
    _, code, _ = _take(job, tmp_path)
    assert _files(code) == [".gitignore", "package/model.py", "run.sh", "train.py"]


def test_a_folder_of_a_repository_is_taken_alone(job: Path, tmp_path: Path) -> None:
    _git(job, "init")
    assert list(_take(job / "package", tmp_path)[2]) == ["model.py"]


def test_without_git_a_repository_is_walked(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _git(job, "init")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert _files(_take(job, tmp_path)[1]) == ["package/model.py", "run.sh", "train.py"]


def test_named_folders_are_no_code(job: Path, tmp_path: Path) -> None:
    (job / "saved").mkdir()
    (job / "saved/step-1.pt").touch()
    digest, code, _ = _take(job, tmp_path, without=(job / "saved",))
    assert not (code / "saved").exists()
    (job / "saved/step-1.pt").unlink()
    assert digest == _take(job, tmp_path / "again", without=(job / "saved",))[0]
