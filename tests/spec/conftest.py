"""A folder to write job documents in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.errors import DocumentError
from cordee.findings import Finding
from cordee.spec.load import LoadedJob, load_job

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
