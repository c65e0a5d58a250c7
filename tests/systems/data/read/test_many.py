"""Many stretches of files at once, in threads."""

from __future__ import annotations

import os
import random
import threading

import pytest

from cordee.systems.data.node.read.packed.batch_pread import ManyReads


@pytest.fixture
def opened(tmp_path):
    """Three files of random bytes, open, and their contents."""
    draw = random.Random(5)
    contents = [draw.randbytes(size) for size in (3_000_000, 70_001, 0)]
    files = []
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
        files.append(os.open(tmp_path / str(number), os.O_RDONLY))
    yield files, contents
    for file in files:
        os.close(file)


def drawn(files, contents, count, seed):
    """Return random stretches, some of them empty or beyond the end, and their bytes."""
    draw = random.Random(seed)
    asked = []
    for _ in range(count):
        which = draw.randrange(len(files))
        begin = draw.randrange(len(contents[which]) + 10)
        asked.append((which, draw.choice([0, 1, 700, 20_000, 90_000]), begin))
    expected = [contents[which][begin : begin + size] for which, size, begin in asked]
    return (
        [files[which] for which, _, _ in asked],
        [size for _, size, _ in asked],
        [begin for _, _, begin in asked],
        expected,
    )


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 5, 256, 257, 1000])
def test_stretches_come_in_the_order_asked_for(opened, threads, count):
    reads = ManyReads(threads)
    files, sizes, begins, expected = drawn(*opened, count, seed=count + threads)
    assert reads.read(files, sizes, begins) == expected
    assert [type(each) for each in reads.read(files, sizes, begins)] == [bytes] * count
    reads.close()


def test_what_was_begun_is_read_while_other_lists_are(opened):
    reads = ManyReads(2)
    lists = [drawn(*opened, 300, seed) for seed in range(6)]
    begun = [reads.start(*each[:3]) for each in lists]
    assert reads.read(*lists[2][:3]) == lists[2][3]
    for answer, each in zip(reversed(begun), reversed(lists), strict=True):
        found, began, ended = answer.wait()
        assert found == each[3]
        assert began <= ended
    reads.close()


def test_a_file_that_cannot_be_read_is_an_error_and_the_next_list_is_read(opened, tmp_path):
    files, contents = opened
    reads = ManyReads(2)
    unreadable = os.open(tmp_path / "0", os.O_WRONLY)
    asked = drawn(files, contents, 200, 1)
    for place in (0, 100, 199):
        wrong = [*asked[0][:place], unreadable, *asked[0][place + 1 :]]
        with pytest.raises(OSError, match="Bad file descriptor"):
            reads.read(wrong, [90_000] * 200, asked[2])
        with pytest.raises(OSError, match="Bad file descriptor"):
            reads.start(wrong, [90_000] * 200, asked[2]).wait()
    os.close(unreadable)
    assert reads.read(*asked[:3]) == asked[3]
    reads.close()


def test_bytes_are_their_own_and_stay_what_they_were(opened):
    reads = ManyReads(1)
    files, contents = opened
    found = [reads.read([files[0]] * 20, [1000] * 20, [at * 1000] * 20) for at in range(50)]
    for at, each in enumerate(found):
        assert each == [contents[0][at * 1000 : at * 1000 + 1000]] * 20
        assert {hash(data) for data in each} == {hash(contents[0][at * 1000 : at * 1000 + 1000])}
    reads.close()


def test_closing_ends_the_threads_and_what_was_begun_is_read_before(opened):
    before = set(threading.enumerate())
    reads = ManyReads(4)
    asked = drawn(*opened, 400, 3)
    begun = [reads.start(*asked[:3]) for _ in range(8)]
    reads.close()
    assert set(threading.enumerate()) <= before
    assert [answer.wait()[0] for answer in begun] == [asked[3]] * 8
