from __future__ import annotations

import numpy as np
import pytest

from cordee.core.errors import RunFolderError
from cordee.telemetry.store.shards import ShardedArray, create_array, write_vector


@pytest.fixture
def array(tmp_path):
    """An array of 3 metrics x 50 times x 10 devices in shards of 4 x 40 x 8, of which a piece is written."""
    dims = ("metric", "time", "device")
    made = create_array(
        tmp_path / "a", shape=(3, 50, 10), chunks=(1, 20, 4), shards=(4, 40, 8), dims=dims, transposed=True
    )
    made.write(np.arange(3 * 25 * 10, dtype=np.float32).reshape(3, 25, 10), 0, 10, 0)
    return made


def everything(array):
    return array.read((0, 3), (0, 50), (0, 10))


def test_what_is_written_is_read_and_the_rest_is_missing(array):
    values = everything(array)
    assert np.isnan(values[:, :10]).all()
    assert np.isnan(values[:, 35:]).all()
    np.testing.assert_array_equal(values[:, 10:35].ravel(), np.arange(750))
    np.testing.assert_array_equal(array.read((1, 2), (12, 15), (3, 9))[0], values[1, 12:15, 3:9])


def test_zarr_reads_what_cordee_writes(array, tmp_path):
    import zarr

    write_vector(tmp_path / "device", ["n-1", "n-é"], {})
    write_vector(tmp_path / "time", np.arange(5) * 0.5, {"units": "s"})
    np.testing.assert_array_equal(zarr.open_array(str(array.path), mode="r")[:], everything(array))
    assert list(zarr.open_array(str(tmp_path / "device"), mode="r")[:]) == ["n-1", "n-é"]
    assert zarr.open_array(str(tmp_path / "time"), mode="r")[:].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_cordee_reads_and_writes_on_what_zarr_wrote(tmp_path):
    import zarr
    from zarr.codecs import BloscCodec

    made = zarr.open_group(str(tmp_path), mode="a", zarr_format=3).create_array(
        "old",
        shape=(2, 30, 5),
        chunks=(1, 10, 8),
        shards=(8, 20, 8),
        dtype="float32",
        fill_value=float("nan"),
        compressors=BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle"),
        dimension_names=("metric", "time", "device"),
    )
    made[:, :25] = 1.5
    array = ShardedArray(tmp_path / "old")
    array.write(np.full((1, 10, 5), 7, dtype=np.float32), 1, 15, 0)
    assert array.read((0, 2), (0, 30), (0, 5))[:, :, 0].tolist() == [
        [1.5] * 25 + [pytest.approx(np.nan, nan_ok=True)] * 5,
        [1.5] * 15 + [7.0] * 10 + [pytest.approx(np.nan, nan_ok=True)] * 5,
    ]


def test_writing_over_a_piece_keeps_the_others_and_an_array_grows(array):
    before = everything(array)
    array.write(np.full((1, 2, 3), -1, dtype=np.float32), 2, 30, 5)
    array.grow(3, 100, 10)
    array.write(np.full((3, 50, 10), 5, dtype=np.float32), 0, 50, 0)
    after = ShardedArray(array.path).read((0, 3), (0, 100), (0, 10))
    assert (after[2, 30:32, 5:8] == -1).all()
    after[2, 30:32, 5:8] = before[2, 30:32, 5:8]
    np.testing.assert_array_equal(after[:, :50], before)
    assert (after[:, 50:] == 5).all()


@pytest.mark.parametrize("size", [0, 3, 100, -1])
def test_a_shard_that_was_not_copied_whole_is_a_gap_and_named(array, size):
    path = array.path / "c" / "0" / "0" / "0"
    data = path.read_bytes()
    path.write_bytes(data[:size])
    values = everything(array)
    assert np.isnan(values[:, :40, :8]).all()
    assert not np.isnan(values[:, 10:35, 8:]).any()
    assert array.damaged == {"c/0/0/0": "its index is missing or damaged"}


def test_a_damaged_chunk_is_a_gap_and_named(array):
    path = array.path / "c" / "0" / "0" / "0"
    data = bytearray(path.read_bytes())
    data[4:12] = b"\xff" * 8
    path.write_bytes(data)
    values = everything(array)
    assert np.isnan(values[0, :20, :4]).all()
    assert "a chunk is damaged" in array.damaged["c/0/0/0"]


def test_a_shard_that_is_not_there_is_a_gap(array):
    (array.path / "c" / "0" / "0" / "1").unlink()
    assert np.isnan(everything(array)[:, :40, 8:]).all()


@pytest.mark.parametrize("text", ["", "{}", '{"codecs": [{"name": "bytes"}]}'])
def test_an_array_of_another_kind_is_refused_by_name(array, text):
    (array.path / "zarr.json").write_text(text)
    with pytest.raises(RunFolderError, match="cannot be read"):
        ShardedArray(array.path)
