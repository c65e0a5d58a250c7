"""Shards that the webdataset library wrote, read by their index: the same samples as that library gives."""

from __future__ import annotations

import numpy
import pytest

from cordee.core.errors import UsageError
from cordee.systems.data.node.read.sources import open_source
from cordee.systems.data.pack.shards.index_only import index_shards

# A name longer than a header holds, one that is not ASCII, and one with a folder.
KEYS = ["a", "train/b", "x" * 150, "ü/" + "y" * 110, "c"]


@pytest.fixture(scope="module", autouse=True)
def _webdataset():
    """The library, which brings PyTorch, where these tests run: not in every process that only collects them."""
    global webdataset
    import webdataset


@pytest.fixture
def written(tmp_path):
    samples = [{"__key__": key, "jpg": key.encode() * 40, "json": {"key": key}, "cls": 3} for key in KEYS]
    with webdataset.ShardWriter(str(tmp_path / "set-%06d.tar"), maxcount=2, verbose=0) as writer:
        for sample in samples:
            writer.write(sample)
    return tmp_path


def test_what_webdataset_wrote_is_read_the_same(written):
    index_shards(str(written), None)
    source = open_source(str(written), keys=True)
    order = numpy.random.default_rng(2).permutation(len(KEYS))
    ours = {sample["key"]: sample for sample in source.read(order)}
    theirs = webdataset.WebDataset([str(path) for path in sorted(written.glob("*.tar"))], shardshuffle=False)
    found = {sample["__key__"]: sample for sample in theirs}
    assert set(ours) == set(found) == set(KEYS)
    for key, sample in found.items():
        assert {field: ours[key][field] for field in ("jpg", "json", "cls")} == {
            field: sample[field] for field in ("jpg", "json", "cls")
        }


def test_an_index_without_check_sums_reads_and_says_that_it_cannot_compare(written):
    index_shards(str(written), None, crc=False)
    source = open_source(str(written), fields=["jpg"])
    sample = source.read(numpy.array([0]))[0]
    assert sample == {"jpg": b"a" * 40, "label": 3}
    source.verify(0, {"jpg": b"other"})
    with pytest.raises(UsageError, match="no check sums"):
        open_source(str(written), check="always")
