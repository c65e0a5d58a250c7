"""Ranks that stand in all ways that need no collective, seen and looked at by the agent's side; their torch is an empty one."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cordee.wire.messages import RankStand
from support.runs.watched_ranks import WatchedRanks, a_torch, make_node_zip, watching

# At work for a part of the time, whatever else the machine does.
WORKS = """
import time
while True:
    until = time.process_time() + 0.02
    while time.process_time() < until:
        sum(range(10_000))
    time.sleep(0.03)
"""
PROGRAMS = {
    "stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "holds": "import ctypes; lock = ctypes.PyDLL(None).pthread_mutex_lock; one = bytes(64); lock(one); lock(one)",
    "fifo": "import os; os.mkfifo('fifo'); open('fifo')",
    "child": f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKS!r}])",
    "waits": "import time; time.sleep(600)",
    "bare": "import time; time.sleep(600)",
    "busy": WORKS,
}
RANK = {kind: rank for rank, kind in enumerate(PROGRAMS)}
WITHOUT_TORCH = ("bare", "busy")


class Seen(NamedTuple):
    """What was seen of all ranks, and collected."""

    stands: dict[int, RankStand]
    files: dict[str, bytes]

    def document(self, kind: str) -> Any:
        return json.loads(self.files[f"rank-{RANK[kind]}.json"])

    def stacks(self, kind: str) -> str:
        return self.files.get(f"rank-{RANK[kind]}.stacks", b"").decode()


@pytest.fixture(scope="module")
def node_zip(real: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_node_zip(tmp_path_factory.mktemp("node-zip"))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, node_zip: Path) -> Seen:
    folder, found = tmp_path_factory.mktemp("ranks"), []

    async def during(ranks: WatchedRanks) -> None:
        with a_torch(folder) as packages:
            for kind, program in PROGRAMS.items():
                before = "" if kind in WITHOUT_TORCH else "import torch, time; time.sleep(0.5)\n"
                (folder / f"{kind}.py").write_text(before + program)
                ranks.start(RANK[kind], str(folder / f"{kind}.py"), packages=packages)
        standing = {RANK[kind] for kind in PROGRAMS if kind not in ("child", "busy")}
        silent = {RANK["holds"]}

        def all_stand() -> bool:
            stands = ranks.stands()
            return standing <= set(stands) and {rank for rank in stands if stands[rank].why == "silent"} == silent

        ranks.steps = {rank: 7 for rank in RANK.values() if rank != RANK["bare"] and rank != RANK["busy"]}
        await ranks.until(all_stand)

        def child_works() -> bool:
            stand = ranks.stands().get(RANK["child"])
            return stand is not None and stand.idle_s < stand.stands_s / 2

        await ranks.until(child_works)
        found.append(Seen(ranks.stands(), await ranks.gather()))

    watching(folder, node_zip, during)
    return found[0]


def test_a_stopped_rank_is_told_as_such_and_not_waited_for(seen: Seen):
    assert seen.stands[RANK["stopped"]].why == "stopped"
    assert seen.document("stopped")["state"] == "T"
    assert f"rank {RANK['stopped']}: it is stopped or gone" in seen.files[""].decode()
    stacks = seen.stacks("stopped")
    assert not stacks or "stopped.py" in stacks  # py-spy sees them, where it is installed and may look


def test_a_rank_that_holds_the_interpreter_is_silent_and_shows_its_stack_all_the_same(seen: Seen):
    assert seen.stands[RANK["holds"]].why == "silent"
    assert "holds.py" in seen.stacks("holds")
    assert seen.document("holds")["beat_age_s"] >= 5
    assert f"rank {RANK['holds']}: no Flight Recorder dump: no thread" in seen.files[""].decode()


def test_a_rank_that_waits_for_a_fifo_is_shown_with_its_line_and_the_path(seen: Seen):
    assert seen.stands[RANK["fifo"]].why == ""
    assert 'fifo.py", line 2 in <module>' in seen.stacks("fifo")
    assert seen.document("fifo")["open"] == "fifo"
    assert seen.document("fifo")["wchan"] == "wait_for_partner"


def test_a_rank_whose_child_works_stands_and_is_not_idle(seen: Seen):
    assert seen.stands[RANK["child"]].idle_s < seen.stands[RANK["waits"]].idle_s
    (child,) = seen.document("child")["children"]
    assert child["name"] == "python"


def test_a_rank_without_torch_and_steps_stands_while_it_does_nothing(seen: Seen):
    stand = seen.stands[RANK["bare"]]
    assert (stand.began, stand.stands_s) == (False, stand.idle_s)
    assert RANK["busy"] not in seen.stands
    assert seen.document("bare")["groups"] == []
    assert seen.document("busy")["processor_s"] > seen.document("bare")["processor_s"]


def test_a_document_says_what_the_agent_knows(seen: Seen):
    told = seen.document("waits")
    assert (told["schema"], told["rank"], told["node"], told["attempt"]) == ("cordee.stand/1", RANK["waits"], "n", 1)
    assert (told["step"], told["began"], told["launched_as"]) == (7, True, RANK["waits"])
    assert {thread["name"] for thread in told["threads"]} == {"python"}
    assert len(told["threads"]) == 2
    node = json.loads(seen.files["node-n.json"])
    assert (node["schema"], node["node"], node["hanging"]) == ("cordee.stand_node/1", "n", [])


def test_a_rank_that_goes_on_is_told_no_more_and_its_files_go_with_it(tmp_path: Path, node_zip: Path):
    async def during(ranks: WatchedRanks) -> None:
        with a_torch(tmp_path) as packages:
            ranks.start(0, "-c", "import torch, time; time.sleep(600)", packages=packages)
        ranks.steps = {0: 1}
        await ranks.until(lambda: ranks.stands() and list(ranks.meeting.glob("*.pulse")))
        ranks.steps = {0: 2}
        await ranks.until(lambda: not ranks.stands())
        os.kill(ranks.pids()[0], signal.SIGKILL)
        await ranks.until(lambda: not list(ranks.meeting.iterdir()))

    watching(tmp_path, node_zip, during)


def test_where_it_is_off_nothing_is_started_and_nothing_told(tmp_path: Path, node_zip: Path):
    async def during(ranks: WatchedRanks) -> None:
        with a_torch(tmp_path) as packages:
            ranks.start(
                0, "-c", "import torch, os; print(sorted(os.environ), os.listdir('meeting'))", packages=packages
            )
        await ranks.until(lambda: ranks.ended)
        assert b"CORDEE_CHANNEL" in ranks.printed["rank-0"]
        assert b"CORDEE_PULSE" not in ranks.printed["rank-0"]
        assert b"[]" in ranks.printed["rank-0"]

    watching(tmp_path, node_zip, during, enabled=False, stragglers=False)


def test_an_order_is_done_once_in_a_session_and_again_in_another(tmp_path: Path, node_zip: Path):
    async def during(ranks: WatchedRanks) -> None:
        ranks.start(0, "-c", "import time; time.sleep(600)")
        await ranks.until(ranks.pids)
        await ranks.gather("hang-1", 3.0)
        told = len(ranks.told.parts)
        await ranks.gather("hang-1", 3.0)
        assert len(ranks.told.parts) == told
        ranks.told.identifier = "another"
        ranks.told.parts.clear()
        assert "rank-0.json" in await ranks.gather("hang-1", 3.0)

    watching(tmp_path, node_zip, during)


DEEP = """
import torch, threading, time
def deep(left):
    deep(left - 1) if left else time.sleep(600)
for _ in range(90):
    threading.Thread(target=deep, args=(90,), daemon=True).start()
time.sleep(600)
"""


def test_what_a_rank_writes_when_it_is_asked_for_its_stacks_is_no_activity(tmp_path: Path, node_zip: Path):
    async def during(ranks: WatchedRanks) -> None:
        with a_torch(tmp_path) as packages:
            ranks.start(0, "-c", DEEP, packages=packages)
        ranks.steps = {0: 1}
        await ranks.until(lambda: ranks.stands() and ranks.stands()[0].idle_s > 3)
        before = ranks.stands()[0].idle_s
        stacks = (await ranks.gather())["rank-0.stacks"]
        assert len(stacks) > 100_000
        await ranks.until(lambda: ranks.stands()[0].stands_s > before + 3)
        assert ranks.stands()[0].idle_s > before

    watching(tmp_path, node_zip, during)


def test_an_order_about_another_attempt_is_answered_at_once(tmp_path: Path, node_zip: Path):
    async def during(ranks: WatchedRanks) -> None:
        from cordee.wire.messages import Gather

        ranks.orders[Gather](Gather("hang-1", 7, 5.0), b"")
        assert ranks.told.files("hang-1") == {"": b"attempt 7 has no ranks on n"}

    watching(tmp_path, node_zip, during)


RAS = """#!/bin/sh
echo "$@" >> {log}
[ "$2" = -f ] && {old} && exit 1
echo '{{"communicators": []}}'
"""


@pytest.mark.parametrize(("old", "name"), [("false", "ras-n.json"), ("true", "ras-n.txt")])
def test_what_nccl_says_of_itself_is_collected(
    tmp_path: Path, node_zip: Path, monkeypatch: pytest.MonkeyPatch, old: str, name: str
):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ncclras").write_text(RAS.format(log=tmp_path / "asked", old=old))
    (tools / "ncclras").chmod(0o755)
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "n:1.log").write_text("x" * 200_000 + "last")
    os.mkfifo(tmp_path / "dumps" / "fifo.log")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    async def during(ranks: WatchedRanks) -> None:
        ranks.start(0, "-c", "import time; time.sleep(600)", NCCL_INSPECTOR_DUMP_DIR="dumps")
        await ranks.until(ranks.pids)
        files = await ranks.gather()
        assert files[name] == b'{"communicators": []}\n'
        assert files["inspector-n-n_1.log"].endswith(b"xlast")
        assert len(files["inspector-n-n_1.log"]) == 128 << 10
        assert "inspector-n-fifo.log" not in files

    watching(tmp_path, node_zip, during)
    assert (tmp_path / "asked").read_text().splitlines()[0] == "-v -f json"


KILLS = """#!/bin/sh
# What asks it is a child of the collecting process.
[ -e {once} ] && exit 1
collects=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)
grep -q node.collect /proc/$collects/cmdline || exit 1
touch {once}
kill -9 "$collects"
"""


def test_a_collecting_process_that_is_killed_is_started_once_more(
    tmp_path: Path, node_zip: Path, monkeypatch: pytest.MonkeyPatch
):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ncclras").write_text(KILLS.format(once=tmp_path / "killed"))
    (tools / "ncclras").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    async def during(ranks: WatchedRanks) -> None:
        with a_torch(tmp_path) as packages:
            ranks.start(0, "-c", "import torch, time; time.sleep(600)", packages=packages)
        await ranks.until(lambda: list(ranks.meeting.glob("*.pulse")))
        await ranks.gather()
        assert (tmp_path / "killed").exists()
        asked_again = [at for at, (message, _) in enumerate(ranks.told.parts) if message.times]
        after = [message.name for message, _ in ranks.told.parts[asked_again[-1] :]]
        assert {"rank-0.json", "rank-0.stacks", "node-n.json", ""} <= set(after)

    watching(tmp_path, node_zip, during)


def test_ranks_are_looked_at_when_the_supervisor_wants_it_and_no_longer_than_that(tmp_path: Path, node_zip: Path):
    from cordee.wire.messages import Observe

    async def during(ranks: WatchedRanks) -> None:
        with a_torch(tmp_path) as packages:
            ranks.start(4, "-c", "import torch\n" + WORKS, packages=packages)
        await ranks.until(lambda: list(ranks.meeting.glob("*.pulse")))
        assert ranks.companion.spent().digests is None
        ranks.orders[Observe](Observe(7, True), b"")
        assert ranks.companion.spent().digests is None, "that was about another attempt"
        ranks.orders[Observe](Observe(1, True), b"")
        (digest,) = await ranks.until(lambda: ranks.companion.spent().digests)
        assert (digest.rank, digest.steps) == (4, 0)
        assert 0 < digest.compute.seconds <= digest.window_s
        ranks.orders[Observe](Observe(1, False), b"")
        await ranks.until(lambda: ranks.companion.spent().digests is None)

    watching(tmp_path, node_zip, during, stragglers=False)
