"""A scanner, what it says of some bytes, and a file that no payload may make."""

from __future__ import annotations

import pytest

from cordee.systems.scan.node.scanner import Scanner


@pytest.fixture(scope="module")
def scanner():
    with Scanner(secrets=True, patience=lambda size: 600.0) as scanner:
        yield scanner


@pytest.fixture
def look(scanner, tmp_path):
    """Return the verdict of some bytes."""

    def of(content: bytes, name: str = "file.bin"):
        (tmp_path / name).write_bytes(content)
        return scanner.scan(str(tmp_path / name))

    return of


@pytest.fixture
def canary(tmp_path):
    path = tmp_path / "canary"
    yield path
    assert not path.exists()
