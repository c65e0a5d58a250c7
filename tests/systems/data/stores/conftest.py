"""One S3 server for the tests of a worker, each in a prefix of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from support.servers.object_store import DisposableS3

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[DisposableS3]:
    with DisposableS3() as server:
        yield server


@pytest.fixture
def s3(server: DisposableS3, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty prefix; the environment leads there."""
    server.must_run()
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return f"s3://{server.bucket}/test-{next(NUMBERS)}"
