"""A writer that is killed at any of its calls to the file system: each of them in turn, instead of some moments by chance."""

from __future__ import annotations

import os
import zlib

import pytest

from cordee.systems.checkpoints.node.folder import find_checkpoints
from cordee.systems.checkpoints.node.manifest import Completion, complete
from cordee.systems.checkpoints.node.sums import file_with_sum, verify
from cordee.systems.checkpoints.node.tiers.kept import KeptPart, KeptSaves
from cordee.systems.checkpoints.node.training_folder import CheckpointPlace
from support.runs.killed_saves import killed_at


def content(step):
    return bytes([step]) * 100


def saved(folder, step, keep, attempt):
    os.environ["CORDEE_ATTEMPT"] = str(attempt)
    place = CheckpointPlace(str(folder))
    place.put_back()
    place.begin(partial := place.hidden(f"step-{step:09d}"))
    sums = {"__0_0.distcp": file_with_sum(os.path.join(partial, "__0_0.distcp"), [content(step)], durable=True)}
    return complete(partial, Completion(f"step-{step:09d}", step, 1, "2", keep), sums, place, durable=True)


def whole(folder):
    """Return the steps of what lies there under a name, all of it whole and holding what it should."""
    found = find_checkpoints(folder, "step-*")
    for one in found:
        verify(one.path, 0, 1)
        with open(os.path.join(one.path, "__0_0.distcp"), "rb") as file:
            assert file.read() == content(one.step)
    return [one.step for one in found]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("step", [2, 1])
def test_what_is_saved_is_whole_or_absent_and_the_one_before_is_there_until_then(tmp_path, monkeypatch, step):
    monkeypatch.setenv("CORDEE_RUN_ID", "r-1")
    monkeypatch.setenv("CORDEE_ATTEMPT", "0")
    call, again = 0, True
    while again:
        folder = tmp_path / str(call)
        saved(folder, 1, 1, 0)
        again = killed_at(call, lambda: saved(folder, step, 1, 1))  # noqa: B023
        place = CheckpointPlace(str(folder))
        place.put_back()
        assert set(whole(folder)) & {1, step}
        assert saved(folder, 3, 1, 2).endswith("step-000000003")
        assert whole(folder) == [3]
        left = [name for name in os.listdir(folder) if name.startswith(".") and "tmp-r-1.2" not in name]
        assert left == [], call
        call += 1
    assert call > 20


@pytest.mark.usefixtures("real")
def test_a_part_on_a_node_is_whole_or_not_listed_and_older_ones_stay_as_long_as_they_are_needed(tmp_path):
    call, again = 0, True
    while again:
        saves = KeptSaves(tmp_path / str(call))

        def kept(step):
            saves.forget(0, [f"step-{step}", f"step-{step - 1}"])  # noqa: B023
            data = {"a": content(step), "b": b""}
            sizes = {name: len(one) for name, one in data.items()}
            partial = saves.begin(f"step-{step}", 0, sizes, lambda size: "")  # noqa: B023
            sums = {name: file_with_sum(str(partial / name), [one]) for name, one in data.items()}
            saves.finish(KeptPart(f"step-{step}", 0, sizes, sums))  # noqa: B023

        kept(1)
        kept(2)
        again = killed_at(call, lambda: kept(3))
        there = list(saves.parts())
        assert {"step-2"} <= {part.save for part in there}
        for part in there:
            for name, value in part.sums.items():
                assert zlib.crc32(saves.file(part.save, 0, name).read_bytes()) == value
        kept(3)
        assert {part.save for part in saves.parts()} == {"step-2", "step-3"}
        call += 1
    assert call > 10
