"""A folder of EDFs, and what they resolve to there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cordee.systems.environments.edf import Resolved, resolve

HOST = {"HOME": "/users/me", "USER": "me", "SCRATCH": "/scratch/me", "PATH": "/usr/bin:/bin", "EMPTY": ""}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return what writes a file below the test's folder."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


@pytest.fixture
def resolved(tmp_path: Path, write: Callable[[str, str], Path]) -> Callable[..., Resolved]:
    """Return what resolves the text of an EDF, as `env.toml` in the test's folder."""

    def resolve_text(text: str, variables: Mapping[str, str] = HOST, **options: object) -> Resolved:
        write("env.toml", text)
        return resolve("./env.toml", cwd=tmp_path, variables=variables, **options)  # type: ignore[arg-type]

    return resolve_text


@pytest.fixture
def host() -> dict[str, str]:
    """Return the variables that `resolved` expands with."""
    return dict(HOST)
