"""A folder to write job documents in, and a Slurm that repeats what a real one said."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.core.findings import Finding
from cordee.job.load import LoadedJob, load_job

RECORDED = Path(__file__).parent / "recorded"
Load = Callable[..., LoadedJob]
Faults = Callable[..., list[Finding]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that writes a document and loads it, with an environment of its own."""

    def call(text: str, environ: dict[str, str] | None = None, **more: object) -> LoadedJob:
        (tmp_path / "cordee.toml").write_text(text)
        settings = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "CORDEE_CLUSTERS_PATH": str(tmp_path / "clusters")}
        return load_job(tmp_path, environ={**settings, **(environ or {})}, **more)  # type: ignore[arg-type]

    return call


@pytest.fixture
def faults(load: Load) -> Faults:
    """Return a function that writes a wrong document and returns what is said about it."""

    def call(text: str, **more: object) -> list[Finding]:
        with pytest.raises(DocumentError) as caught:
            load(text, **more)
        assert caught.value.exit_code == 2
        return list(caught.value.findings)

    return call


FAKES = {
    "sinfo": "nodes",
    "scontrol": '$(case "$2" in partition) echo partitions;; config) echo config;; node) echo samples;; *) echo reservations;; esac)',
    "sacctmgr": "$4",
    "sacct": "sacct",
}


class FakeSlurm:
    """Executables on PATH that print what is in `answers/NAME.txt`, or fail with the words in `answers/NAME.error`."""

    def __init__(self, folder: Path) -> None:
        self.answers = folder / "answers"
        shutil.copytree(RECORDED, self.answers)
        (self.answers / "sacct.txt").touch()
        self.calls = folder / "calls"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        for name, answer in FAKES.items():
            text = (
                f"#!/bin/sh\nname={answer}\necho {name} $name >> {self.calls}\ncd {self.answers}\n"
                "[ ! -f $name.error ] || { cat $name.error >&2; exit 1; }\nexec cat $name.txt\n"
            )
            (bin_folder / name).write_text(text)
            (bin_folder / name).chmod(0o755)
        self.clusters = folder / "clusters"
        self.environ = {
            "PATH": f"{bin_folder}:/usr/bin:/bin",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "CORDEE_CLUSTERS_PATH": str(self.clusters),
        }

    def fail(self, name: str, words: str) -> None:
        """Let the command behind an answer fail from now on."""
        (self.answers / f"{name}.error").write_text(words)

    def edit(self, name: str, old: str, new: str) -> None:
        """Change what is said."""
        path = self.answers / f"{name}.txt"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def forget(self) -> None:
        """Let what was remembered be older than a minute."""
        for path in Path(self.environ["XDG_CACHE_HOME"]).rglob("slurm-*.json"):
            os.utime(path, (1, 1))

    def profile(self, text: str, name: str = "slurm") -> None:
        """Write the profile of a cluster."""
        self.clusters.mkdir(exist_ok=True)
        (self.clusters / f"{name}.toml").write_text(text)


@pytest.fixture
def fake_slurm(tmp_path: Path) -> FakeSlurm:
    """A Slurm that repeats what a real one said."""
    return FakeSlurm(tmp_path)
