"""Token sets: pieces and documents of Megatron-LM's .bin and .idx, and files that do not belong together."""

from __future__ import annotations

import os
import struct

import numpy as np
import pytest

import cordee
from cordee.core.errors import CorruptDataError, DataError
from cordee.systems.data.node.read.sources import open_source
from cordee.systems.data.node.read.tokens.index import write_token_index
from cordee.systems.data.node.read.tokens.source import TokenSource
from cordee.systems.data.node.read.tokens.store import open_token_index

DOCUMENTS = [5, 0, 17, 1, 300]


@pytest.fixture
def corpus(tmp_path):
    """A token set whose tokens count up."""
    np.arange(sum(DOCUMENTS), dtype="<u2").tofile(tmp_path / "corpus.bin")
    write_token_index(tmp_path / "corpus.idx", "<u2", np.array(DOCUMENTS))
    return tmp_path / "corpus"


def tokens(source, *samples):
    return [sample["tokens"].tolist() for sample in source.read(np.array(samples))]


def by_the_book(path) -> tuple[np.dtype, list[np.ndarray]]:
    """Read a set as megatron/core/datasets/indexed_dataset.py does: sequences by pointer and length."""
    idx, binary = path.with_suffix(".idx").read_bytes(), path.with_suffix(".bin").read_bytes()
    assert idx[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, documents = struct.unpack("<QBQQ", idx[9:34])
    assert version == 1
    dtype = np.dtype({1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}[code])
    lengths = np.frombuffer(idx, "<i4", sequences, 34)
    pointers = np.frombuffer(idx, "<i8", sequences, 34 + lengths.nbytes)
    bounds = np.frombuffer(idx, "<i8", documents, 34 + lengths.nbytes + pointers.nbytes)
    assert len(idx) == 34 + lengths.nbytes + pointers.nbytes + bounds.nbytes
    assert bounds.tolist() == list(range(sequences + 1))
    found = [np.frombuffer(binary, dtype, n, at) for n, at in zip(lengths, pointers, strict=True)]
    return dtype, found


def test_what_is_written_is_what_megatrons_reader_expects(corpus):
    dtype, documents = by_the_book(corpus)
    assert dtype == np.uint16
    assert [len(document) for document in documents] == DOCUMENTS
    assert np.concatenate(documents).tolist() == list(range(sum(DOCUMENTS)))


@pytest.mark.parametrize("named", ["corpus", "corpus.bin", "corpus.idx", ""])
def test_samples_are_pieces_of_one_stream_that_overlap_by_one_token(corpus, named):
    source = TokenSource(corpus.parent / named, 10)
    assert (source.name, source.size) == ("corpus", 32)
    assert tokens(source, 31, 0, 1, 2, 0) == [list(range(first, first + 11)) for first in (310, 0, 10, 20, 0)]
    assert source.read(np.array([3]))[0]["tokens"].dtype == np.int64
    assert source.describe(3) == f"tokens 30 to 40 of {corpus}.bin"
    assert tokens(source) == []
    source.close()
    assert tokens(source, 5) == [list(range(50, 61))]


def test_samples_that_follow_one_another_are_one_request(corpus):
    source = TokenSource(corpus, 10)
    tokens(source, *range(32))
    tokens(source, 8, 4)
    assert (source.counts.requests, source.counts.samples, source.counts.opens) == (2, 34, 1)
    assert source.counts.bytes == 2 * (321 + 51)


def test_a_document_is_a_sample_when_asked_for(corpus):
    source = TokenSource(corpus, documents=True)
    assert source.size == 5
    assert [len(sample) for sample in tokens(source, 0, 1, 2, 3, 4)] == DOCUMENTS
    assert tokens(source, 3, 2) == [[22], list(range(5, 22))]
    assert source.counts.requests == 2  # a document without tokens is none
    source.expect(np.array([4, 2, 0]))
    assert [len(sample) for sample in tokens(source, 4, 2, 0)] == [300, 17, 5]


def test_read_ahead_is_asked_in_the_files_order_and_changes_nothing(corpus):
    source = TokenSource(corpus, 10)
    source.expect(np.array([30, 2, 2, 0]))
    assert (source.counts.advised, source.counts.advised_bytes) == (1, 2 * 311)
    assert tokens(source, 30)[0][0] == 300
    source.close()


def test_what_is_expected_is_read_in_few_requests_in_whatever_parts_it_is_taken(corpus):
    source = TokenSource(corpus, 10)
    order = np.random.default_rng(1).permutation(32)
    source.expect(order[:20])
    source.expect(order[20:])
    found = [*tokens(source, *order[:3]), *tokens(source, *order[3:25]), *tokens(source, *order[25:])]
    assert found == [list(range(10 * number, 10 * number + 11)) for number in order.tolist()]
    assert source.counts.requests == 1


def test_a_read_of_others_forgets_what_was_expected(corpus):
    source = TokenSource(corpus, 10)
    source.expect(np.array([30, 2, 7]))
    assert [part[0] for part in tokens(source, 2, 7)] == [20, 70]
    assert [part[0] for part in tokens(source, 30, 2, 7)] == [300, 20, 70]


def test_few_steps_of_tiny_samples_read_little_more_than_they_need(tmp_path):
    np.arange(1 << 20, dtype="<u4").tofile(tmp_path / "long.bin")
    write_token_index(tmp_path / "long.idx", "<i4", np.array([1 << 20]))
    ds = cordee.dataset(tmp_path / "long", batch=8, length=16, seed=3)
    for number, batch in enumerate(ds):
        assert (batch["tokens"] % 16 == np.arange(17) % 16).all()
        if number == 50:
            break
    ds.close()
    assert ds.source.counts.samples < 20_000  # of 65,535
    assert ds.counts.requests < 100


def test_a_source_that_is_closed_or_dropped_leaves_no_file(corpus):
    def opened():
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return [link for link in links if os.path.lexists(link) and os.readlink(link) == f"{corpus}.bin"]

    closed, dropped = TokenSource(corpus, 10), TokenSource(corpus, 10)
    tokens(closed, 1)
    tokens(dropped, 1)
    assert len(opened()) == 2
    closed.close()
    del dropped
    assert opened() == []


def test_a_forked_copy_opens_the_file_anew(corpus):
    source = TokenSource(corpus, 10)
    tokens(source, 0)
    pid = os.fork()
    if pid == 0:
        opened = source.counts.opens
        right = tokens(source, 1) == [list(range(10, 21))] and source.counts.opens == opened + 1
        os._exit(0 if right else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_the_identity_changes_with_the_documents_and_the_length(corpus):
    first = TokenSource(corpus, 10).identity
    assert TokenSource(corpus, 10).identity == first
    assert TokenSource(corpus, 11).identity != first
    write_token_index(corpus.with_suffix(".idx"), "<u2", np.array([*DOCUMENTS[:-1], 200, 100]))
    assert TokenSource(corpus, 10).identity != first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"length": 323}, "no sample"),
        ({}, "pieces of a length"),
        ({"length": 5, "documents": True}, "pieces of a length"),
    ],
)
def test_a_length_that_gives_no_sample_is_refused(corpus, arguments, said):
    with pytest.raises(DataError, match=said):
        TokenSource(corpus, **arguments)


def test_where_no_set_is_the_error_says_what_makes_one(tmp_path):
    with pytest.raises(DataError, match="cordee data pack TEXT --as tokens"):
        open_token_index(tmp_path)


def test_of_several_sets_in_a_folder_one_has_to_be_named(corpus):
    write_token_index(corpus.with_name("other.idx"), "<u2", np.array([], dtype=np.int64))
    corpus.with_name("other.bin").touch()
    with pytest.raises(DataError, match=r"other"):
        open_token_index(corpus.parent)


def cut(path, size):
    os.truncate(path, os.stat(path).st_size - size)


def changed(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda path: cut(f"{path}.bin", 2), "cut off"),
        (lambda path: changed(f"{path}.bin", sum(DOCUMENTS) * 2, b"1234"), "longer than its index"),
        (lambda path: cut(f"{path}.idx", 1), "1 bytes are missing"),
        (lambda path: os.truncate(f"{path}.idx", 20), "cut off"),
        (lambda path: os.truncate(f"{path}.idx", 0), "does not begin"),
        (lambda path: changed(f"{path}.idx", 0, b"TNTIDX"), "does not begin"),
        (lambda path: changed(f"{path}.idx", 9, b"\x02"), "version 2"),
        (lambda path: changed(f"{path}.idx", 17, b"\x06"), "float64"),
        (lambda path: changed(f"{path}.idx", 17, b"\x63"), "unknown"),
        (lambda path: changed(f"{path}.idx", 18, b"\xff" * 6), "cut off"),
        (lambda path: changed(f"{path}.idx", 34, b"\x06"), "one behind the other"),
        (lambda path: changed(f"{path}.idx", 34 + 12 * 5, b"\x07"), "not in order"),
        (lambda path: changed(f"{path}.idx", 34 + 12 * 5 + 40, b"\x04"), "do not end with"),
    ],
)
def test_files_that_are_damaged_or_do_not_belong_together_are_refused(corpus, harm, said):
    harm(corpus)
    with pytest.raises(CorruptDataError, match=said):
        TokenSource(corpus, 10)


def test_tokens_that_are_cut_off_while_they_are_read_are_not_made_up(corpus):
    source = TokenSource(corpus, 10)
    cut(f"{corpus}.bin", 100)
    with pytest.raises(CorruptDataError, match="end before"):
        tokens(source, 31)


def test_tokens_without_an_index_are_read_where_their_type_is_named(tmp_path):
    path = tmp_path / "train.bin"
    path.write_bytes(np.arange(41, dtype="<u2").tobytes())
    with pytest.raises(DataError, match=r"no \.idx") as raised:
        open_source(str(path), length=4)
    assert 'dtype="uint16"' in raised.value.next
    source = open_source(str(path), length=4, dtype="uint16")
    assert (source.size, source.read(np.array([9]))[0]["tokens"].tolist()) == (10, [36, 37, 38, 39, 40])
    wide = open_source(str(path), length=4, dtype="uint8")
    assert wide.identity != source.identity
    for options, said in (
        ({"dtype": "float32"}, "no such type"),
        ({"dtype": "int32"}, "no whole number"),
        ({"dtype": "uint16", "documents": True, "length": 0}, "where documents begin"),
    ):
        with pytest.raises(DataError, match=said):
            open_source(str(path), **{"length": 4, **options})
    write_token_index(tmp_path / "train.idx", "<u2", np.array([41]))
    with pytest.raises(DataError, match=r"given of a \.bin alone"):
        open_source(str(path), length=4, dtype="uint16")
    assert open_source(str(path), length=4).size == 10
