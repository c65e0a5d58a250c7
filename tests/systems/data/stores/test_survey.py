"""An object store is surveyed by listing it."""

from __future__ import annotations

import io
import tarfile

import numpy
import pytest

from cordee.core.errors import UsageError
from cordee.job.profile import ClusterProfile
from cordee.systems.data.survey.path_survey import judge, survey
from cordee.wire.stores import open_store


def test_objects_are_counted_and_their_formats_told(s3: str) -> None:
    store = open_store(s3)
    for number in range(5):
        array = io.BytesIO()
        numpy.save(array, numpy.zeros(number))
        store.write(f"arrays/part-{number}.npy", [array.getvalue()])
    shard = io.BytesIO()
    with tarfile.open(fileobj=shard, mode="w") as tar:
        for name in ("1.cls", "1.jpg", "2.cls", "2.jpg"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    store.write("shards/a-000000.tar", [shard.getvalue()])
    store.write("empty", [b""])
    found = survey(s3)
    assert (found.path, found.files, found.empty_files, found.depth) == (s3, 7, 1, 1)
    assert found.bytes == sum(each.bytes for each in store.list())
    assert {each.name: (each.files, each.by) for each in found.formats} == {
        "npy": (5, "content"),
        "webdataset": (1, "content"),
        "other": (1, "name"),
    }
    assert (found.folders, found.allocated_bytes) == (None, None)
    judged = judge(found, ClusterProfile())
    assert judged.machine.data_place.path == s3
    assert (judged.purge, judged.quotas) == (None, ())
    assert judged.document()["folders"] is None


def test_an_empty_prefix_is_said(s3: str) -> None:
    with pytest.raises(UsageError, match="nothing is at this address"):
        survey(s3)
    with pytest.raises(UsageError, match="address of a store cannot be used"):
        survey("ftp://somewhere/else")
