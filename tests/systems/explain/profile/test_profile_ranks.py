"""Real ranks of a script that knows nothing of Cordée are traced while they run, and are left as they were."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from cordee.wire.messages import ProfileRanks
from cordee.wire.pulse import EXTRAS
from support.runs.watched_ranks import WatchedRanks, make_node_zip, watching

pytestmark = pytest.mark.usefixtures("real")

SCRIPT = Path(__file__).with_name("traced_train.py")


class Profiled:
    """Ranks, and what has become of orders to profile them."""

    def __init__(self, ranks: WatchedRanks) -> None:
        self.ranks, self._count = ranks, 0

    def order(self, *wanted: int, tool: str = "torch", steps: int = 0, seconds: float = 0.0, **more: Any) -> str:
        self._count += 1
        name, extras = f"profile-{self._count}", sum(EXTRAS[extra] for extra in more.get("extras", ()))
        within_s = more.get("within_s", 120.0)
        order = ProfileRanks(name, self.ranks.attempt, within_s, wanted, tool, 0.0, steps, seconds, extras)
        self.ranks.orders[ProfileRanks](order, b"")
        return name

    async def end_of(self, name: str) -> dict[int, dict[str, Any]]:
        """Return what was told of each rank last."""
        await self.ranks.until(lambda: "" in self.ranks.told.files(name), 120)
        return self.states(name)

    def states(self, name: str) -> dict[int, dict[str, Any]]:
        told = [json.loads(body) for one, body in self.ranks.told.parts if one.id == name and "state-" in one.name]
        return {one["rank"]: one for one in told}

    async def make(self, *wanted: int, **how: Any) -> dict[int, dict[str, Any]]:
        return await self.end_of(self.order(*wanted, **how))

    async def tracing(self, *wanted: int, **how: Any) -> str:
        """Order a trace and return its name once it is being made."""
        name = self.order(*wanted, **how)
        await self.ranks.until(
            lambda: all(self.states(name).get(rank, {}).get("state") == "tracing" for rank in wanted)
        )
        return name

    def trace(self, number: int, rank: int = 0) -> list[dict[str, Any]]:
        content = gzip.decompress(self.ranks.told.files(f"profile-{number}")[f"rank-{rank}.json.gz"])
        events: list[dict[str, Any]] = json.loads(content)["traceEvents"]
        return events


def traced(tmp_path: Path, during: Any, *ranks: int, argv: tuple[str, ...] = ()) -> None:
    """Have the script trained by some ranks, each in a folder of its own, while `during` asks for traces."""

    async def live(watched: WatchedRanks) -> None:
        for rank in ranks:
            (tmp_path / str(rank)).mkdir()
            shutil.copy(SCRIPT, tmp_path / str(rank) / "train.py")
            code = f"import os, runpy; os.chdir('{rank}'); runpy.run_path('train.py', run_name='__main__')"
            watched.start(rank, "-c", code, *argv)
        await watched.until(lambda: all((tmp_path / str(rank) / "ready").exists() for rank in ranks), 120)
        await watched.until(lambda: len(watched.companion._about()[1]) == len(ranks))
        await watched.until(lambda: all(about["pulse"] for about in watched.companion._about()[1]), 60)
        await during(Profiled(watched))

    watching(tmp_path, make_node_zip(tmp_path), live)


async def left_as_it_was(ranks: WatchedRanks, folder: Path, rank: int = 0) -> None:
    """End a rank and see that nothing of a trace stayed in it or beside its pulse."""
    assert not [name for name in os.listdir(ranks.meeting) if "trace" in name or "profile" in name]
    (folder / str(rank) / "end").touch()
    await ranks.until(lambda: f"rank-{rank}" in ranks.ended)
    ended = ranks.ended[f"rank-{rank}"]
    assert (ended.code, ended.signal) == (0, None), ranks.printed
    assert b"left as it was" in ranks.printed[f"rank-{rank}"]


def test_the_next_steps_are_traced_as_often_as_asked_and_nothing_stays(tmp_path):
    async def during(profiled: Profiled) -> None:
        told = await profiled.make(0, 5, steps=3)
        assert list(told) == [0]
        assert (told[0]["state"], told[0]["steps"]) == ("ready", 3)
        events = profiled.trace(1)
        marks = [event for event in events if event["name"].startswith("ProfilerStep#")]
        first = told[0]["before"] + 1
        assert [mark["name"] for mark in marks] == [f"ProfilerStep#{first + number}" for number in range(3)]
        for mark in marks:
            inside = [event for event in events if mark["ts"] < event.get("ts", 0) < mark["ts"] + mark["dur"]]
            assert [event["name"] for event in inside].count("Optimizer.step#SGD.step") == 1
            assert [event["name"] for event in inside].count("aten::addmm") == 3

        told = await profiled.make(0, steps=2, extras=("stacks", "shapes"))
        assert told[0]["before"] >= first + 2
        events = profiled.trace(2)
        assert any("train.py" in event["name"] for event in events if event.get("cat") == "python_function")
        assert any(event.get("args", {}).get("Input Dims") for event in events)

        told = await profiled.make(0, seconds=0.5)
        assert told[0]["steps"] > 3
        assert "aten::addmm" in {event["name"] for event in profiled.trace(3)}
        await left_as_it_was(profiled.ranks, tmp_path)

    traced(tmp_path, during, 0)


def test_the_script_s_own_profiler_goes_first_and_loses_nothing(tmp_path):
    own = tmp_path / "0"

    async def during(profiled: Profiled) -> None:
        (own / "warm_up").touch()
        told = await profiled.make(0, steps=3)
        assert "own torch.profiler is at work" in told[0]["text"]
        (own / "go-on").touch()
        await profiled.ranks.until((own / "warm_up-steps").exists)
        assert (own / "warm_up-steps").read_text() == "3"

        name = await profiled.tracing(0, steps=1000)
        (own / "at_once").touch()
        told = await profiled.end_of(name)
        assert "goes first" in told[0]["text"]
        await profiled.ranks.until((own / "at_once-steps").exists)
        assert (own / "at_once-steps").read_text() == "4"
        (own / "at_once-steps").unlink()

        name = await profiled.tracing(0, seconds=100.0)
        (own / "at_once").touch()
        assert "goes first" in (await profiled.end_of(name))[0]["text"]
        await profiled.ranks.until((own / "at_once-steps").exists)
        assert (own / "at_once-steps").read_text() == "4"
        assert (await profiled.make(0, steps=1))[0]["state"] == "ready"
        await left_as_it_was(profiled.ranks, tmp_path)

    traced(tmp_path, during, 0)


def test_ranks_that_make_no_step_or_stop_or_end_are_told_and_end_as_they_would(tmp_path):
    async def during(profiled: Profiled) -> None:
        ranks = profiled.ranks
        told = await profiled.make(0, steps=3, within_s=9.0)
        assert "no step of a torch optimizer" in told[0]["text"]
        assert "--seconds" in told[0]["text"]

        os.kill(ranks.pids()[1], signal.SIGSTOP)
        told = await profiled.make(1, steps=3)
        assert "stopped" in told[1]["text"]
        os.kill(ranks.pids()[1], signal.SIGCONT)

        name = await profiled.tracing(0, 1, seconds=100.0)
        for rank in (0, 1):
            (tmp_path / str(rank) / "end").touch()
        told = await profiled.end_of(name)
        assert all("ended before" in one["text"] for one in told.values())
        await ranks.until(lambda: len(ranks.ended) == 2)
        assert [(ended.code, ended.signal) for ended in ranks.ended.values()] == [(0, None)] * 2, ranks.printed

    traced(tmp_path, during, 0, 1, argv=("no-steps",))


def test_a_rank_that_ends_while_its_steps_are_traced_ends_as_it_would(tmp_path):
    async def during(profiled: Profiled) -> None:
        name = await profiled.tracing(0, steps=1000)
        (tmp_path / "0" / "end").touch()
        assert "ended before" in (await profiled.end_of(name))[0]["text"]
        await profiled.ranks.until(lambda: profiled.ranks.ended)
        ended = profiled.ranks.ended["rank-0"]
        assert (ended.code, ended.signal) == (0, None), profiled.ranks.printed

    traced(tmp_path, during, 0)


def tool(folder: Path, name: str, script: str) -> None:
    """Put a program of this name on PATH that does what the script says."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def sleeper(tmp_path):
    """Return what has a rank without torch profiled by a tool."""

    def profile(*orders: tuple[str, dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, bytes]]]:
        found = []

        async def during(ranks: WatchedRanks) -> None:
            ranks.start(0, "-c", "while True: sum(range(1000))")
            await ranks.until(lambda: ranks.companion._about()[1])
            profiled = Profiled(ranks)
            for number, (name, more) in enumerate(orders, 1):
                told = await profiled.make(0, tool=name, seconds=1.0, **more)
                found.append((told[0], ranks.told.files(f"profile-{number}")))
            assert not [name for name in os.listdir(ranks.meeting) if "profile" in name]

        watching(tmp_path, make_node_zip(tmp_path), during)
        return found

    return profile


def test_a_tool_attaches_to_a_rank_for_some_seconds_and_its_words_are_told_when_it_cannot(
    tmp_path, monkeypatch, sleeper
):
    for name, script in {
        "py-spy": 'while [ "$1" != --output ]; do shift; done; echo "{}" > "$2"',
        "perf": "echo 'Access to performance monitoring is limited' >&2; exit 255",
        "rocprofv3": "echo 'no such option here'",
    }.items():
        tool(tmp_path, name, script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (spied, files), (perf, _), (rocprof, _), (nsys, _) = sleeper(
        *((name, {}) for name in ("py-spy", "perf", "rocprof", "nsys"))
    )
    assert spied["state"] == "ready"
    assert gzip.decompress(files["rank-0.speedscope.json.gz"]) == b"{}\n"
    assert "Access to performance monitoring is limited" in perf["text"]
    assert "perf_event_paranoid" in perf["text"]
    assert "has no --attach" in rocprof["text"]
    assert "only what it has started itself" in nsys["text"]


def test_a_tool_that_is_not_installed_and_one_that_never_ends_are_told(tmp_path, monkeypatch, sleeper):
    tool(tmp_path, "perf", "sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    (spied, _), (perf, _) = sleeper(("py-spy", {}), ("perf", {"within_s": 6.0}))
    assert "py-spy is not installed" in spied["text"]
    assert "longer than was given" in perf["text"]


def test_a_rank_without_torch_cannot_trace_itself(sleeper):
    ((told, _),) = sleeper(("torch", {}))
    assert "has not imported torch" in told["text"]
