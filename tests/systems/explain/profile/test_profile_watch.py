"""Beside the lead of a run: what is asked of agents, what is kept of their answers, and what is said of the rest."""

from __future__ import annotations

import asyncio
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from cordee.runs.folder import RunFolder
from cordee.runs.lane import Lane
from cordee.systems.explain.node.profile import files as profile_files
from cordee.systems.explain.node.profile import watch as watching
from cordee.systems.explain.node.profile.watch import ProfileWatch
from cordee.wire.messages import Gathered, ProfileRanks

NODES = [SimpleNamespace(name=name) for name in ("n1", "n2")]
REQUEST = {
    **{"request": "profile", "id": "abc", "ranks": [0, 3], "tool": "torch"},
    **{"steps": 5, "seconds": 0.0, "wait_s": 60.0, "extras": 0},
}


class Run:
    """Two nodes with two ranks each, and all that a watcher has of a supervisor."""

    def __init__(self, tmp_path, monkeypatch) -> None:
        self.now, self.orders = 100.0, []
        self.gone: set[str] = set()
        self.attempt: Any = SimpleNamespace(number=2, nodes=NODES, ranks_per_node=2)
        monkeypatch.setattr(watching, "monotonic", lambda: self.now)
        self.folder = RunFolder(tmp_path)
        self.watch = ProfileWatch(
            SimpleNamespace(folder=self.folder, order=self.order, attempt=lambda: self.attempt, lane=Lane)  # type: ignore[arg-type]
        )

    def order(self, node, message) -> bool:
        self.orders.append((node.name, message))
        return node.name not in self.gone

    def told(self, at: int, name: str = "", body: bytes = b"", last: bool = True, text: str = "") -> None:
        self.watch.gathered(NODES[at], Gathered(self.orders[-1][1].id, name, last if name else False, text), body)

    def state(self, at: int, rank: int, state: str, text: str = "") -> None:
        told = {"rank": rank, "node": NODES[at].name, "state": state, "text": text}
        self.told(at, f"state-{rank}", json.dumps(told).encode())

    async def document(self, number: int = 1, over: bool = True) -> dict[str, Any]:
        """Return what is written, once it is as far as this."""
        path = self.folder.root / "profiles" / str(number) / "profile.json"
        for _ in range(1000):
            await asyncio.sleep(0.01)
            if path.exists() and (found := json.loads(path.read_text()))["over"] == over:
                return found
        raise AssertionError(list(self.folder.root.rglob("*")))


@pytest.fixture
def run(tmp_path, monkeypatch):
    return Run(tmp_path, monkeypatch)


def ranks_of(document: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {about["rank"]: about for about in document["ranks"]}


def test_all_nodes_are_asked_and_files_are_kept_as_they_come_in_parts(run, tmp_path):
    async def main() -> None:
        run.watch.requested({"request": "stacks"})
        assert not run.orders
        run.watch.requested(REQUEST)
        (first, order), (second, _) = run.orders
        assert (first, second, order.wanted, order.attempt, order.steps) == ("n1", "n2", (0, 3), 2, 5)
        run.state(0, 0, "tracing", "step 2 of 5")
        run.watch.second(run.now)
        document = await run.document(over=False)
        assert document["id"] == "abc"
        run.told(0, "rank-0.json.gz", b"ab", last=False)
        run.told(0, "rank-0.json.gz", b"cd")
        run.state(0, 0, "ready")
        run.told(0)
        run.state(1, 3, "failed", "it has ended before")
        run.told(1, text="a word")
        document = await run.document()
        ranks = ranks_of(document)
        assert (ranks[0]["state"], ranks[0]["file"], ranks[0]["bytes"]) == ("written", "rank-0.json.gz", 4)
        assert (ranks[3]["state"], ranks[3]["text"]) == ("failed", "it has ended before")
        assert document["notes"] == ["n2: a word"]
        assert (tmp_path / "profiles/1/rank-0.json.gz").read_bytes() == b"abcd"
        assert not (tmp_path / "profiles/1/.rank-0.json.gz").exists()

    asyncio.run(main())


def test_what_is_written_late_does_not_say_over_before_the_files_are_there(run, tmp_path, monkeypatch):
    written: list[tuple[bool, str]] = []
    describe = profile_files.ProfileFiles.describe
    goes_on = threading.Event()

    def slowly(self, document):
        goes_on.wait(60)
        written.append((document["over"], document["ranks"][0]["state"]))
        describe(self, document)

    monkeypatch.setattr(profile_files.ProfileFiles, "describe", slowly)

    async def main() -> None:
        run.watch.requested({**REQUEST, "ranks": [0]})
        run.state(0, 0, "tracing")
        run.watch.second(run.now)
        run.told(0, "rank-0.json.gz", b"abcd")
        run.told(0)
        run.told(1)
        goes_on.set()
        await run.document()

    asyncio.run(main())
    assert written == [(False, "tracing"), (False, "tracing"), (True, "written")]


def test_only_one_profile_is_made_at_a_time_and_another_afterwards(run):
    async def main() -> None:
        run.watch.requested(REQUEST)
        await run.document(over=False)
        run.watch.requested({**REQUEST, "id": "def"})
        refused = await run.document(2)
        assert (refused["id"], refused["error"]) == ("def", "profile 1 is being made: wait until it is over")
        assert len(run.orders) == 2
        run.told(0)
        run.told(1)
        await run.document(1)
        run.watch.requested({**REQUEST, "id": "ghi"})
        assert (await run.document(3, over=False))["id"] == "ghi"
        assert len(run.orders) == 4

    asyncio.run(main())


def test_ranks_that_nobody_has_and_nodes_that_say_nothing_are_named(run):
    async def main() -> None:
        run.gone = {"n2"}
        run.watch.requested({**REQUEST, "ranks": [0, 9]})
        run.told(0)
        ranks = ranks_of(await run.document())
        assert "no process of it runs" in ranks[0]["text"]
        assert "ranks 0 to 3" in ranks[9]["text"]
        run.gone = set()
        run.watch.requested(REQUEST)
        run.told(0)
        run.now += 61.0
        run.watch.second(run.now)
        run.now += 5.0
        run.watch.second(run.now)
        ranks = ranks_of(await run.document(2))
        assert "not all nodes have answered: n2" in ranks[3]["text"]

    asyncio.run(main())


def test_a_run_whose_ranks_end_or_are_started_anew_is_not_waited_for(run):
    async def main() -> None:
        run.watch.requested(REQUEST)
        run.attempt = SimpleNamespace(number=3, nodes=NODES, ranks_per_node=2)
        run.watch.second(run.now)
        run.watch.second(run.now + 6.0)
        assert "the ranks have ended, and others run now" in (await run.document())["notes"]
        run.watch.requested(REQUEST)
        run.watch.close()
        document = await run.document(2)
        assert document["error"] == "the run has ended"
        run.attempt = None
        run.watch.requested(REQUEST)
        assert (await run.document(3))["error"] == "no ranks run yet"
        assert len(run.orders) == 4

    asyncio.run(main())


def test_what_is_too_much_and_what_has_no_name_of_ours_is_not_kept(run, tmp_path, monkeypatch):
    monkeypatch.setattr(profile_files, "_MOST_BYTES", 10)
    (tmp_path / "secret").write_text("own")

    async def main() -> None:
        run.watch.requested(REQUEST)
        for name in ("../../secret", "rank-0.json", "rank-0.json.gz/../../x", "profile.json"):
            run.told(0, name, b"x")
        run.told(0, "rank-0.json.gz", bytes(8), last=False)
        run.told(0, "rank-0.json.gz", bytes(8))
        run.told(0)
        run.told(1, "rank-3.json.gz", b"x")
        run.told(1)
        ranks = ranks_of(await run.document())
        assert (ranks[0]["state"], "more than" in ranks[0]["text"]) == ("failed", True)
        assert ranks[3]["state"] == "failed"
        assert sorted(path.name for path in (tmp_path / "profiles/1").iterdir()) == ["profile.json"]
        assert (tmp_path / "secret").read_text() == "own"

    asyncio.run(main())


def test_a_link_in_place_of_a_file_is_not_followed(run, tmp_path):
    async def main() -> None:
        run.watch.requested(REQUEST)
        await run.document(over=False)
        (tmp_path / "target").write_text("own")
        (tmp_path / "profiles/1/.rank-0.json.gz").symlink_to(tmp_path / "target")
        run.told(0, "rank-0.json.gz", b"x")
        run.told(0)
        run.told(1)
        ranks = ranks_of(await run.document())
        assert "cannot be written" in ranks[0]["text"]
        assert (tmp_path / "target").read_text() == "own"

    asyncio.run(main())


def test_answers_to_other_questions_are_passed_over(run):
    async def main() -> None:
        run.watch.requested(REQUEST)
        (order,) = {message for _, message in run.orders}
        assert isinstance(order, ProfileRanks)
        run.watch.gathered(NODES[0], Gathered("hang-1"), b"")
        run.told(0, "state-7", b"[]")
        run.told(0, "state-7", b"{")
        run.state(0, 7, "ready")
        document = await run.document(over=False)
        assert list(ranks_of(document)) == [0, 3]

    asyncio.run(main())
