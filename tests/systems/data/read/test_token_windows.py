"""Which requests are made for windows of a file."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

from cordee.systems.data.node.read.tokens.files import Fetched
from cordee.systems.data.node.read.tokens.windows import TokenWindows, WindowShape

FILE = np.random.default_rng(0).bytes(100_000)


class Asked:
    """A file that notes what it is asked for, and when it was waited for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def __call__(self, offset: int, size: int):
        self.asked.append((offset, size))
        return lambda: FILE[offset : offset + size]


def taken(windows: TokenWindows, begins: np.ndarray, ends: np.ndarray) -> list[bytes]:
    sizes = (ends - begins).tolist()
    return [answer()[at : at + size] for (answer, at), size in zip(windows.take(begins, ends), sizes, strict=True)]


def right(begins: np.ndarray, ends: np.ndarray) -> list[bytes]:
    return [FILE[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("near", [0, 10, 1000])
@pytest.mark.parametrize("most", [1, 300, 1 << 20])
def test_every_window_comes_back_whatever_is_joined_and_cut(early, near, most):
    drawn = np.random.default_rng(near + most)
    begins = drawn.integers(0, 99_000, 500)
    ends = begins + drawn.integers(0, 900, 500)
    ask = Asked()
    windows = TokenWindows(ask, WindowShape(near, 1 << 62, most, early))
    windows.expect(begins[:450], ends[:450])
    windows.expect(begins[450:], ends[450:])
    for first, last in ((0, 7), (7, 7), (7, 300), (300, 500)):
        assert taken(windows, begins[first:last], ends[first:last]) == right(begins[first:last], ends[first:last])
    assert max(size for _, size in ask.asked) < 900 + most


def test_near_windows_are_one_request_and_far_ones_are_not():
    ask = Asked()
    begins = np.array([5000, 0, 130, 5100])
    taken(TokenWindows(ask, WindowShape(40, 1 << 20, 1 << 20, False)), begins, begins + 100)
    assert ask.asked == [(0, 230), (5000, 200)]


def test_what_lies_between_is_read_only_up_to_a_limit():
    begins = np.arange(0, 10_000, 100)
    for waste, requests in ((20_000, 1), (8000, 100)):
        ask = Asked()
        taken(TokenWindows(ask, WindowShape(95, waste, 1 << 20, False)), begins, begins + 10)
        assert len(ask.asked) == requests


def test_early_requests_begin_small_and_go_before_what_is_taken():
    ask = Asked()
    windows = TokenWindows(ask, WindowShape(0, 0, 1 << 20, True))
    begins = np.arange(0, 100_000, 100)
    windows.expect(begins, begins + 10)
    seen = []
    for first in range(0, 40, 10):
        windows.take(begins[first : first + 10], begins[first : first + 10] + 10)
        seen.append(len(ask.asked))
    assert seen[0] < 50
    assert all(asked >= 10 * (number + 2) for number, asked in enumerate(seen))


def test_windows_without_bytes_ask_for_nothing():
    ask = Asked()
    windows = TokenWindows(ask, WindowShape(0, 0, 1 << 20, False))
    assert taken(windows, np.array([7, 900]), np.array([7, 900])) == [b"", b""]
    assert windows.take(np.zeros(0, np.int64), np.zeros(0, np.int64)) == []
    assert ask.asked == []


def test_what_was_asked_for_early_and_is_not_waited_for_is_left_out():
    futures: list[Future[bytes]] = []

    def ask(offset: int, size: int) -> Fetched:
        futures.append(Future())
        return Fetched(futures[-1])

    windows = TokenWindows(ask, WindowShape(0, 0, 1 << 20, True))
    begins = np.arange(0, 1000, 100)
    windows.expect(begins, begins + 10)
    windows.take(begins[:1], begins[:1] + 10)
    windows.take(begins[7:8], begins[7:8] + 10)
    assert len(futures) > 2
    assert all(future.cancelled() for future in futures)
