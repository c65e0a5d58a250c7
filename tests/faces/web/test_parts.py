"""The parts of the server by themselves: tables, the cache, pages of logs, clients that take nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cordee.core.web.peers import Peers
from cordee.faces.web.answers.cache import Cache, CachedBody
from cordee.faces.web.answers.forms import packed
from cordee.faces.web.answers.tables import NumberTable, encode, encode_frame
from cordee.faces.web.gate.access import Access
from cordee.faces.web.gate.guard import Guard
from cordee.faces.web.runs import logs
from cordee.runs.logframes import LogReader, LogWriter

from .frames import decode_frame

LINES = 3000


def test_a_frame_gives_back_what_was_put_in_and_begins_where_arrays_may() -> None:
    arrays = {
        "times": np.arange(3, dtype=np.float64),
        "values": np.array([[1.0, np.nan], [np.inf, -2.5], [0.0, 3.0]], dtype=np.float32),
        "none": np.zeros((0, 4), dtype=np.float32),
        "whole": np.arange(5),
    }
    frame = encode_frame(NumberTable(arrays, {"unit": "watts", "low": float("nan"), "name": "<b>é"}))
    assert frame[:4] == b"CoF1"
    length = int.from_bytes(frame[4:8], "little")
    assert (8 + length) % 8 == 0
    found = decode_frame(frame)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    assert found.arrays["values"].dtype == np.float32
    assert found.facts == {"unit": "watts", "low": None, "name": "<b>é"}
    with pytest.raises(ValueError, match="no frame"):
        decode_frame(b"PK\3\4")


def test_numbers_that_are_none_are_null_in_json() -> None:
    assert (
        encode(NumberTable({"a": np.array([[1.0, np.nan], [np.inf, 2.0]])}), "json") == b'{"a":[[1.0,null],[null,2.0]]}'
    )


def test_noise_is_not_compressed_and_text_is() -> None:
    noise = np.random.default_rng(0).random(50_000).tobytes()
    assert packed(noise).packed is None
    text = packed(b"abc" * 50_000)
    assert text.packed is not None
    assert len(text.packed) < 10_000


def test_what_many_ask_at_once_is_made_once() -> None:
    cache, entered, go_on = Cache(), threading.Event(), threading.Event()
    made: list[int] = []

    def make() -> CachedBody:
        made.append(1)
        entered.set()
        assert go_on.wait(60)
        return CachedBody(b"x")

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(cache.get, "tag", make)
        assert entered.wait(60)
        others = [pool.submit(cache.get, "tag", make) for _ in range(7)]
        go_on.set()
        assert {future.result(60) for future in [first, *others]} == {CachedBody(b"x")}
    assert len(made) == 1


def test_a_failure_is_told_to_all_who_wait_and_is_not_kept() -> None:
    cache = Cache()

    def fail() -> CachedBody:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get("tag", fail)
    assert cache.get("tag", lambda: CachedBody(b"y")) == CachedBody(b"y")


def test_the_cache_drops_what_was_not_asked_for_the_longest() -> None:
    cache = Cache(most_bytes=100)
    for tag in "abc":
        cache.get(tag, lambda: CachedBody(b"x" * 40))
    made: list[str] = []

    def again(tag: str) -> CachedBody:
        made.append(tag)
        return CachedBody(b"x" * 40)

    for tag in "cba":
        cache.get(tag, lambda tag=tag: again(tag))  # type: ignore[misc]
    assert made == ["a"]
    cache.get("large", lambda: CachedBody(b"x" * 99))
    assert cache.get("large", lambda: CachedBody(b"new")) == CachedBody(b"new")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs of two nodes whose ranks took turns, some lines at one moment and some in pieces."""
    folder = tmp_path_factory.mktemp("logs")
    writers = [LogWriter(folder / f"n{node}-1.log") for node in range(2)]
    for number in range(LINES):
        rank, moment = number % 4, 1000.0 + number // 3
        writers[rank // 2].write(rank, number % 2, 1, f"line {number} ".encode(), moment)
        writers[rank // 2].write(rank, number % 2, 1, b"\xff<b>\n" if number % 2 else b"end\n", moment)
    for writer in writers:
        writer.close()
    return folder


def pages(reader: LogReader, **selection: Any) -> list[dict[str, Any]]:
    """Return all lines, read a page at a time from the newest back."""
    found: list[dict[str, Any]] = []
    before, asked = None, 0
    while True:
        page = logs.page(reader, 100, before=before, **selection)
        assert [line["time"] for line in page["lines"]] == sorted(line["time"] for line in page["lines"])
        found = [*page["lines"], *found]
        before, asked = page["before"], asked + 1
        if before is None:
            return found
        assert asked < LINES


@pytest.mark.parametrize("window", [256, 8 << 10])
def test_pages_of_logs_have_every_line_once(printed: Path, monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(logs, "_LEAST_WINDOW", window)
    monkeypatch.setattr(logs, "_LARGEST_WINDOW", window)
    monkeypatch.setattr(logs, "_SEARCHED_BYTES", 1000)
    reader = LogReader(printed)
    whole = [(line.time, line.rank, line.data) for line in reader.lines()]
    found = [(line["time"], line["rank"], line["text"]) for line in pages(reader)]
    assert sorted(found) == sorted((time, rank, data.decode(errors="replace")) for time, rank, data in whole)
    of_rank = pages(reader, rank=3, stream="err")
    assert [line["text"] for line in of_rank] == [f"line {number} �<b>" for number in range(3, LINES, 4)]


def test_new_lines_are_had_by_asking_for_what_came_after(printed: Path) -> None:
    newest = logs.page(LogReader(printed), 5)["lines"][-1]["time"]
    page = logs.page(LogReader(printed), 100, after=newest - 1)
    assert {line["time"] for line in page["lines"]} == {newest}


def test_a_line_without_an_end_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "n0-1.log")
    for percent in range(2000):
        writer.write(0, 1, 1, f"\r{percent} of 2000 {'#' * 50}".encode(), 1000.0 + percent)
    writer.close()
    (line,) = logs.page(LogReader(tmp_path), 10)["lines"]
    assert line["text"].startswith("1999 of 2000")


def test_a_line_too_long_for_a_page_is_cut_and_marked(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "n0-1.log")
    writer.write(0, 0, 1, b"x" * 100_000 + b"\nshown\rover\r\n", 1.0)
    writer.close()
    first, second = logs.page(LogReader(tmp_path), 10)["lines"]
    assert first["cut"]
    assert len(first["text"]) < 5000
    assert second["text"] == "over"


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 10})


def test_a_client_that_takes_nothing_is_left_after_a_while() -> None:
    taken: list[str] = []

    async def stuck(message: MutableMapping[str, Any]) -> None:
        taken.append(message["type"])
        await asyncio.Event().wait()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    guard = Guard(_answer, frozenset({"here"}), Access(users=frozenset({7})), _Known(), lambda: None, patience_s=0.01)
    scope = {"type": "http", "path": "/", "headers": [(b"host", b"here")], "client": ("127.0.0.1", 1)}
    asyncio.run(asyncio.wait_for(guard(scope, receive, stuck), 60))
    assert taken == ["http.response.start"]


class _Known(Peers):
    """Peers that are all one user."""

    async def owner(self, scope: Any) -> int | None:
        return 7
