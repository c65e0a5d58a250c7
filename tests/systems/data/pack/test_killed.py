"""A packing that is killed at any moment loses nothing and packs nothing twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.systems.data.node.shards.index import INDEX_NAME
from cordee.systems.data.pack._base import PackOptions
from cordee.systems.data.pack.build import pack, plan_of
from cordee.systems.data.pack.shards.index_only import index_shards
from support.data.shards import digests, packed

CHANGES = ("write", "rename", "fsync", "unlink", "ftruncate", "mkdir", "rmdir")
FORK = multiprocessing.get_context("fork")


def killed_at(change: int, work: Callable[[], object]) -> bool:
    """Run `work` in a process that is killed before its `change`-th change of the disk; say whether it came to that."""

    def child() -> None:
        left = [change]

        def counted(real):
            def call(*arguments, **named):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return call

        for name in CHANGES:
            setattr(os, name, counted(getattr(os, name)))
        work()

    process = FORK.Process(target=child)
    process.start()
    process.join()
    assert process.exitcode in (0, 1, -signal.SIGKILL)  # 1: one of its own processes was killed
    return process.exitcode != 0


def pack_small(source: Path, to: Path, workers: int) -> None:
    pack(plan_of(str(source)), str(to), PackOptions(shard_bytes=70_000, workers=workers))


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_packing_killed_again_and_again_ends_with_the_same_bytes(image_folder, tmp_path, workers):
    pack_small(image_folder, tmp_path / "straight" / "set", 1)
    expected = digests(tmp_path / "straight" / "set")
    for first in range(0, 60, 12 * workers):
        out = tmp_path / f"killed-{first}" / "set"
        kills = 0
        while killed_at(first + 3 * kills, lambda out=out: pack_small(image_folder, out, workers)):
            kills += 1
            assert not (out / INDEX_NAME).exists() or digests(out).items() >= expected.items()
            assert kills < 60
        assert digests(out) == expected


def test_an_indexing_killed_again_and_again_ends_with_the_same_index(image_folder, tmp_path):
    packed(image_folder, tmp_path / "set")
    os.unlink(tmp_path / "set" / INDEX_NAME)
    index_shards(str(tmp_path / "set"))
    expected = digests(tmp_path / "set")
    os.unlink(tmp_path / "set" / INDEX_NAME)
    kills = 0
    while killed_at(2 * kills, lambda: index_shards(str(tmp_path / "set"))):
        kills += 1
    assert kills > 3
    assert digests(tmp_path / "set") == expected
