"""From the webdataset library to a training and back, as people do it: its shards, our command, our loop; ours in its pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cordee

SAMPLES = 60


@pytest.fixture(scope="module", autouse=True)
def _webdataset() -> None:
    """The library, which brings PyTorch, where these tests run: not in every process that only collects them."""
    global webdataset
    import webdataset


def content(number: int) -> dict[str, Any]:
    return {"bin": bytes([number]) * (number * 11), "json": {"number": number}, "cls": number % 4}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of the library's own writer, with the index that our command makes."""
    folder = tmp_path_factory.mktemp("theirs")
    with webdataset.ShardWriter(str(folder / "set-%06d.tar"), maxcount=25, verbose=0) as writer:
        for number in range(SAMPLES):
            writer.write({"__key__": f"{number:05d}", **content(number)})
    subprocess.run([sys.executable, "-m", "cordee.faces.cli", "data", "pack", str(folder), "--index-only"], check=True)
    return folder


def read(
    folder: Path, state: dict[str, Any] | None = None, most: int = SAMPLES
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return samples by key and the state after them."""
    dataset = cordee.dataset(folder, batch=8, seed=3, keys=True, decode={"json": "auto"}, rank=0, world=1)
    if state is not None:
        dataset.load_state_dict(state)
    found: dict[str, Any] = {}
    for batch in dataset:
        for at, key in enumerate(batch["key"]):
            assert key not in found, "given twice"
            found[key] = (batch["bin"][at], int(batch["json"]["number"][at]), int(batch["label"][at]))
        if len(found) >= most:
            break
    return found, dataset.state_dict()


def test_their_shards_are_trained_from_with_an_index_alone(theirs):
    found, _ = read(theirs)
    assert found == {
        f"{number:05d}": (content(number)["bin"], number, content(number)["cls"]) for number in range(SAMPLES)
    }


def test_a_training_from_their_shards_goes_on_where_it_was(theirs):
    before, state = read(theirs, most=24)
    after, _ = read(theirs, state)
    assert not before.keys() & after.keys()
    assert len(before) + len(after) == SAMPLES


def test_their_pipeline_decodes_ours(tmp_path):
    for number in range(SAMPLES):
        folder = tmp_path / "plain" / f"class-{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:03d}.txt").write_text(f"text {number} " + "x" * 3000)
    command = [
        sys.executable,
        "-m",
        "cordee.faces.cli",
        "data",
        "pack",
        str(tmp_path / "plain"),
        "--to",
        str(tmp_path / "ours"),
    ]
    subprocess.run([*command, "--shard-size", "64KiB", "--labels", "folders"], check=True)
    shards = sorted(str(path) for path in (tmp_path / "ours").glob("*.tar"))
    assert len(shards) > 1
    pipeline = (
        webdataset.WebDataset(shards, shardshuffle=len(shards), seed=1).shuffle(20).decode().to_tuple("txt", "cls")
    )
    assert sorted(pipeline) == sorted((f"text {number} " + "x" * 3000, number % 3) for number in range(SAMPLES))
