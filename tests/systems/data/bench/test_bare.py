"""Pieces of data sets, and bare loops over them."""

from __future__ import annotations

import os

import numpy
import pytest

from cordee.core.errors import DataError
from cordee.systems.data.bench import bare
from cordee.systems.data.bench.pieces import find_pieces
from cordee.systems.data.node.read.tokens.index import write_token_index


def test_a_packed_sample_is_one_span_from_its_first_field_to_its_last(packed, files):
    pieces = find_pieces(str(packed))
    sizes = sorted(path.stat().st_size + 4 for path in files.rglob("*.bin"))
    assert (pieces.kind, pieces.samples, len(pieces.files)) == ("packed", 300, 3)
    assert sorted(pieces.payload.tolist()) == sizes
    assert (pieces.span > pieces.payload).all(), "a tar header lies between the fields"
    one = find_pieces(str(packed), ("bin",))
    assert (one.span == one.payload).all()
    assert one.bytes == sum(sizes) - 4 * 300


def test_the_index_file_means_its_data_set(packed):
    assert find_pieces(str(packed / "dataset.index")).identity == find_pieces(str(packed)).identity


def test_files_are_listed_without_following_links(files, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.bin").write_bytes(b"123")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "out").symlink_to(files)
    pieces = find_pieces(str(tmp_path))
    assert (pieces.kind, pieces.samples, pieces.bytes) == ("files", 1, 3)


def test_one_large_file_is_read_in_blocks(tmp_path):
    (tmp_path / "large.h5").write_bytes(bytes(3_000_000))
    pieces = find_pieces(str(tmp_path / "large.h5"))
    assert (pieces.kind, pieces.samples, pieces.bytes) == ("blocks", 3, 3_000_000)


def test_a_token_set_is_read_in_samples_of_its_length(tmp_path):
    numpy.arange(1001, dtype="<u2").tofile(tmp_path / "text.bin")
    write_token_index(tmp_path / "text.idx", "<u2", numpy.array([1001]))
    for name in ("text", "text.bin", "text.idx"):
        pieces = find_pieces(str(tmp_path / name), length=100)
        assert (pieces.kind, pieces.samples, set(pieces.span.tolist())) == ("tokens", 10, {202})
        assert pieces.offset.tolist() == list(range(0, 2000, 200))
    assert find_pieces(str(tmp_path / "text")).kind == "blocks", "without a length nobody knows its samples"


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_what_cannot_be_measured_is_said(tmp_path, what):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError):
        find_pieces(str(tmp_path / what))


def test_a_field_that_is_not_there_is_named(packed):
    with pytest.raises(DataError) as error:
        find_pieces(str(packed), ("jpg",))
    assert (error.value.given, error.value.allowed) == ("jpg", ["bin", "txt"])


@pytest.mark.parametrize("which", ["packed", "files"])
def test_a_bare_loop_counts_what_it_read(request, which):
    pieces = find_pieces(str(request.getfixturevalue(which)))
    samples = numpy.array([5, 0, 5, 299])
    read = bare.read_bare(pieces, samples)
    assert (read.samples, read.bytes) == (4, int(pieces.payload[samples].sum()))
    assert read.seconds > 0


def test_a_loop_that_takes_too_long_counts_what_it_had(packed):
    pieces = find_pieces(str(packed))
    assert bare.read_bare(pieces, numpy.resize(numpy.arange(300), 3000), most_s=0.0).samples == 256


def test_what_fits_is_at_least_one_sample_and_no_more_than_asked_for(packed):
    pieces = find_pieces(str(packed))
    order = numpy.arange(300)
    assert len(bare.fitting(pieces, order, 1)) == 1
    some = bare.fitting(pieces, order, 500_000)
    assert pieces.span[some].sum() <= 500_000 < pieces.span[order[: len(some) + 1]].sum()


def test_a_file_in_a_memory_file_system_does_not_become_cold(packed):
    pieces = find_pieces(str(packed))
    bare.drop(pieces.files, written=True)
    share = bare.cached_share(pieces, numpy.arange(300))
    assert share is None or 0 <= share <= 1


def test_small_files_have_no_direct_rate(files):
    assert bare.direct_rate(find_pieces(str(files)).files) is None


def test_a_large_file_is_read_past_the_cache_or_the_file_system_cannot(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(os.urandom(1 << 20) * 24)
    rate = bare.direct_rate([str(path)])
    assert rate is None or rate > 0


def test_memory_is_copied_at_some_rate():
    assert bare.copy_rate(1) > 1e6
