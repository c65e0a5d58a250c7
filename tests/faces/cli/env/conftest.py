"""`cordee env` in a folder of EDFs, called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cordee.faces.cli import main


class Done(NamedTuple):
    """What a command returned and printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Return what calls `cordee env` in the test's folder, for a person without settings."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "HOME": "/users/me",
        "PATH": "/usr/bin:/bin",
        "EDF_IMAGESTORE": str(tmp_path / "store"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("EDF_PATH", raising=False)

    def call(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as ended:
            main(["env", *arguments])
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return call
