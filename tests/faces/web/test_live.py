"""Following a run: what is told, to whom, and what happens when either side goes away."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from cordee.faces.web.live import Hub, _cursor
from cordee.faces.web.runs.library import RunLibrary
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events, encode_grid, encode_schema
from cordee.testing.patience import PatientWait, wait_until
from support.servers.serving import ServedRuns

PATIENCE_S = 90.0
METRICS = [{"name": "memory_rss_bytes", "unit": "bytes", "source": "test"}]


class Written:
    """A run of one rank that a test writes a little further at a time."""

    def __init__(self, parent: Path, name: str = "written-20261121T000000Z-abcd") -> None:
        self.folder = RunFolder.create(parent, name)
        self.journal = JournalWriter(self.folder.journal, "supervisor-1", 1)
        self.journal.append("submitted", nodes=1)
        self.journal.append("supervisor_started", epoch=1, segment=1)
        self.journal.append("attempt_started", attempt=1, world_size=1, nodes=[{"node": "n0", "ranks": [0]}])
        self.log = BlockLogWriter(self.folder.telemetry, 1)
        self.began = float(int(time.time())) - 20
        self.step = 0

    def go_on(self, value: float = 1.0) -> float:
        """Write one sample and one logged value; return the sample's time."""
        moment = self.began + self.step
        identity, schema = encode_schema("n0", "rank", 1.0, [0], METRICS)
        sample = encode_grid(identity, moment, memoryview(bytearray(8)).tobytes())
        event = (self.step * 64, moment, self.step, {"loss": value})
        self.log.append(schema + sample + encode_events("n0", 0, 1, 0, [event]))
        self.log.flush()
        self.step += 1
        return moment


class Stream:
    """The events of a run, as a browser takes them."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        self.last_id = ""
        self.retry_ms = 0

    def next(self) -> tuple[str, Any]:
        """Return the next event and what it says."""
        kind, data = "message", ""
        for line in self._lines:
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                self.last_id = value
            elif name == "retry":
                self.retry_ms = int(value)
            elif name == "data":
                data = value
            elif not line and data:
                return kind, json.loads(data)
        raise EOFError

    def until(self, wanted: str, fits: Callable[[Any], bool] = lambda _: True) -> Any:
        """Return what the next event of a kind that fits says."""
        patience = PatientWait(PATIENCE_S)
        while not patience.over():
            kind, content = self.next()
            if kind == wanted and fits(content):
                return content
        raise TimeoutError(wanted)


@contextmanager
def following(url: str, run: str, last_id: str = "") -> Iterator[Stream]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with httpx.Client(timeout=PATIENCE_S) as client:
        with client.stream("GET", f"{url}/api/runs/{run}/live", headers=headers) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield Stream(answer)


wait_for = wait_until


@pytest.fixture
def written(runs: Path) -> Written:
    return Written(runs)


def test_samples_values_states_and_findings_are_told_as_they_come(written: Written, runs: Path) -> None:
    written.go_on()
    with ServedRuns(runs) as server, following(server.url, written.folder.id) as stream:
        assert stream.until("state")["state"] == "running"
        assert stream.retry_ms > 0
        moment = written.go_on(0.5)
        stream.until("samples", lambda told: told.get("rank", 0) >= moment)
        step, _, mean = stream.until("logged", lambda told: told["loss"][0] == 1)["loss"]
        assert (step, mean) == (1, 0.5)
        written.journal.append("finding", finding={"text": "<b>bad</b>", "severity": "warn", "rule": "made-up"})
        assert stream.until("finding")["text"] == "<b>bad</b>"
        written.journal.append("ended", state="failed", exit_code=1, reason="made_up", text="it ended")
        assert stream.until("state", lambda told: told["state"] == "failed")["text"] == "it ended"


def test_a_stream_that_begins_again_is_told_only_what_is_new(written: Written, runs: Path) -> None:
    written.go_on()
    written.journal.append("finding", finding={"text": "first", "severity": "warn"})
    with ServedRuns(runs) as server:
        with following(server.url, written.folder.id) as stream:
            stream.until("finding", lambda told: told["text"] == "first")
        written.journal.append("finding", finding={"text": "second", "severity": "warn"})
        with following(server.url, written.folder.id, stream.last_id) as again:
            assert again.until("finding")["text"] == "second"
        deep = base64.urlsafe_b64encode(b"[" * 9_000).decode()
        for cursor in ("no cursor of ours", deep):
            with following(server.url, written.folder.id, cursor) as anew:
                assert anew.until("finding")["text"] == "first"


@pytest.mark.parametrize("cursor", [b"[" * 100_000, b'{"seen":' + b"[" * 100_000, b'{"seen":{},"findings":1e999}'])
def test_a_cursor_that_cannot_be_read_is_none(cursor: bytes) -> None:
    assert _cursor(base64.urlsafe_b64encode(cursor).decode()) == {}


def test_a_stream_goes_on_after_the_server_was_killed_and_started_again(written: Written, runs: Path) -> None:
    written.go_on()
    with ServedRuns(runs) as server:
        port = server.port
        with following(server.url, written.folder.id) as stream:
            stream.until("samples")
    with ServedRuns(runs, port=port) as server, following(server.url, written.folder.id, stream.last_id) as again:
        moment = written.go_on()
        again.until("samples", lambda told: told["rank"] >= moment)


def test_two_servers_on_one_folder_tell_the_same(written: Written, runs: Path) -> None:
    written.go_on()
    with ServedRuns(runs) as one, ServedRuns(runs) as other:
        with following(one.url, written.folder.id) as first, following(other.url, written.folder.id) as second:
            moment = written.go_on()
            for stream in (first, second):
                stream.until("samples", lambda told: told["rank"] >= moment)


def test_a_client_that_goes_is_noticed_and_with_the_last_one_following_ends(written: Written, runs: Path) -> None:
    with ServedRuns(runs) as server:
        hub = server.app.app.state.cordee.hub  # type: ignore[attr-defined]
        with following(server.url, written.folder.id) as first, following(server.url, written.folder.id) as second:
            first.until("state")
            second.until("state")
            assert hub.listeners == 2
            assert len(hub.channels) == 1
        wait_for(lambda: hub.listeners == 0)
        assert not hub.channels


def test_a_server_that_ends_ends_its_streams(written: Written, runs: Path) -> None:
    with ServedRuns(runs) as server:
        with following(server.url, written.folder.id) as stream:
            stream.until("state")
            ending = threading.Thread(target=server.__exit__)
            ending.start()
            with pytest.raises((EOFError, httpx.RemoteProtocolError, httpx.ReadError)):
                while True:
                    stream.next()
            ending.join(PATIENCE_S)
            assert not ending.is_alive()


def test_a_run_that_another_process_writes_is_followed(runs: Path) -> None:
    program = (
        "import sys; from support.made.runs import MadeRun, follow_run\n"
        "for folder in follow_run(sys.argv[1], MadeRun(4, 20)): print(folder.id, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(runs)], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            run = writer.stdout.readline().strip()
            with ServedRuns(runs) as server, following(server.url, run) as stream:
                first = stream.until("samples", lambda told: "gpu" in told)["gpu"]
                stream.until("samples", lambda told: told["gpu"] > first)
        finally:
            writer.kill()


def test_a_run_that_is_deleted_while_it_is_followed_is_told_to_be_gone(written: Written, runs: Path) -> None:
    import shutil

    with ServedRuns(runs) as server, following(server.url, written.folder.id) as stream:
        stream.until("state")
        shutil.rmtree(written.folder.root)
        assert stream.until("state", lambda told: told["state"] == "unreadable")["text"]


async def _listen_badly(hub: Hub, run: str, write: Callable[[], Any], times: int) -> tuple[list[bytes], int]:
    """Take one event, nothing for a long while, then what there is."""
    stream = hub.stream(run, None)
    first = [await anext(stream), await anext(stream)]
    for _ in range(times):
        await asyncio.to_thread(write)
        channel = hub.channels[run]
        known = channel.looks
        deadline = time.monotonic() + PATIENCE_S
        while channel.looks < known + 2 and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
    rest = []
    async for event in stream:
        rest.append(event)
        if b"event: logged" in event and f"[{times - 1},".encode() in event:
            break
    await stream.aclose()
    return rest, len(first)


def test_a_slow_listener_gets_the_newest_and_no_queue(written: Written, runs: Path) -> None:
    hub = Hub(RunLibrary([runs]), poll_s=0.01)
    events, _ = asyncio.run(_listen_badly(hub, written.folder.id, written.go_on, 6))
    assert len([event for event in events if b"event: samples" in event]) <= 2
    assert len([event for event in events if b"event: logged" in event]) <= 2


async def _many(hub: Hub, run: str, count: int, write: Callable[[], Any]) -> int:
    async def one() -> bytes:
        async for event in hub.stream(run, None):
            if b"event: samples" in event:
                return event
        return b""

    tasks = [asyncio.create_task(one()) for _ in range(count)]
    while hub.listeners < count:
        await asyncio.sleep(0)
    followed = len(hub.channels)
    await asyncio.to_thread(write)
    found = await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_S)
    return followed if all(found) else 0


def test_a_hundred_listeners_are_served_by_one_that_looks(written: Written, runs: Path) -> None:
    hub = Hub(RunLibrary([runs]), poll_s=0.01)
    assert asyncio.run(_many(hub, written.folder.id, 100, written.go_on)) == 1
    assert hub.listeners == 0
    assert not hub.channels


async def _pings(hub: Hub, run: str) -> bool:
    stream = hub.stream(run, None)
    async for event in stream:
        if b"event: ping" in event:
            await stream.aclose()
            return b'"now":' in event
    return False


def test_a_stream_without_news_has_a_heartbeat(written: Written, runs: Path) -> None:
    hub = Hub(RunLibrary([runs]), poll_s=0.01, ping_s=0.05)
    assert asyncio.run(asyncio.wait_for(_pings(hub, written.folder.id), PATIENCE_S))
