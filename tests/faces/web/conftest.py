"""A made run of 16 GPUs, and a server over its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cordee.runs.folder import RunFolder
from support.made.runs import MadeRun, write_run
from support.servers.serving import ServedRuns


@pytest.fixture(scope="session")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that has ended, of 4 nodes with 4 GPUs each."""
    return write_run(tmp_path_factory.mktemp("served"), MadeRun(16, 240))


@pytest.fixture(scope="session")
def served(made_folder: RunFolder) -> Iterator[ServedRuns]:
    """A server over it that this user may look at."""
    with ServedRuns(made_folder.root.parent) as server:
        yield server


@pytest.fixture
def client(served: ServedRuns) -> Iterator[httpx.Client]:
    """Asks the server."""
    with httpx.Client(base_url=served.url, timeout=60.0) as asking:
        yield asking


@pytest.fixture
def of_run(made_folder: RunFolder) -> str:
    """Where the made run is below the server's address."""
    return f"/api/runs/{made_folder.id}"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder for runs that a test writes itself."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder
