"""A shard, an index or a file of a data set that is no file is named, and nothing waits for it; links to files are files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cordee
from cordee.core.errors import DataError
from cordee.systems.data.node.read.tokens.index import write_token_index
from cordee.systems.data.node.shards.index import INDEX_NAME, open_index
from cordee.systems.data.pack.verify import verify
from support.data.shards import packed

pytestmark = pytest.mark.timeout(60)  # whoever opens a FIFO waits for ever


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty small files in two folders."""
    for number in range(40):
        path = tmp_path / "files" / f"n{number % 2}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number * 500)
    return tmp_path / "files"


@pytest.fixture
def data_set(folder: Path, tmp_path: Path) -> Path:
    packed(folder, tmp_path / "set", options={"shard_bytes": 20_000})
    return tmp_path / "set"


def fifo(path: Path) -> str:
    path.unlink()
    os.mkfifo(path)
    return "it is a FIFO, not a regular file"


def device(path: Path) -> str:
    path.unlink()
    path.symlink_to("/dev/zero")
    return "it is a device, not a regular file"


ODD = pytest.mark.parametrize("put", [fifo, device])


def shard_of(data_set: Path, number: int) -> Path:
    return data_set / open_index(data_set).shards[number].name


@ODD
@pytest.mark.parametrize("workers", [1, 2])
def test_a_shard_that_is_no_file_is_named_by_verify(put: Callable[[Path], str], data_set: Path, workers: int) -> None:
    shard = shard_of(data_set, 1)
    reason = put(shard)
    (damage,) = verify(str(data_set), workers=workers).damaged
    assert damage.shard == shard.name
    assert reason in damage.reason


@ODD
def test_a_shard_that_is_no_file_is_named_in_a_training(put: Callable[[Path], str], data_set: Path) -> None:
    reason = put(shard_of(data_set, 0))
    with pytest.raises(DataError, match=reason):
        list(cordee.dataset(str(data_set), batch=1, shuffle=False))


@ODD
def test_an_index_that_is_no_file_is_named(put: Callable[[Path], str], data_set: Path) -> None:
    reason = put(data_set / INDEX_NAME)
    with pytest.raises(DataError, match=reason):
        verify(str(data_set))
    with pytest.raises(DataError, match=reason):
        cordee.dataset(str(data_set), batch=1)


def test_files_of_a_data_set_may_be_links_to_files(data_set: Path, tmp_path: Path) -> None:
    def read(path: Path) -> list[bytes]:
        return [bytes(batch["txt"][0]) for batch in cordee.dataset(str(path), batch=1, shuffle=False)]

    before = read(data_set)
    scratch = tmp_path / "scratch"
    data_set.rename(scratch)
    data_set.mkdir()
    for path in scratch.iterdir():
        (data_set / path.name).symlink_to(path)
    (tmp_path / "data").symlink_to(data_set)
    assert verify(str(tmp_path / "data")).damaged == []
    assert read(tmp_path / "data") == before


@ODD
@pytest.mark.parametrize("ending", ["bin", "idx"])
def test_a_token_set_that_is_no_file_is_refused(put: Callable[[Path], str], ending: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    np.arange(400, dtype="<u2").tofile(f"{path}.bin")
    write_token_index(f"{path}.idx", "<u2", np.array([400]))
    put(Path(f"{path}.{ending}"))
    with pytest.raises(DataError, match=r"data set|token"):
        cordee.dataset(str(path), batch=1, length=16)
