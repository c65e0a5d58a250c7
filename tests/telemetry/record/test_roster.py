from __future__ import annotations

import json
import os
import select
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import pytest

from cordee.core.errors import RunFolderError
from cordee.machine.processes.tree import read_process
from cordee.telemetry.node.record.roster import RankTaken, RecordingRoster, Registration


def registration(rank: int = 0, **more) -> Registration:
    mine = {"pid": os.getpid(), "start_ticks": read_process(os.getpid()).start_ticks, "attempt": 0, **more}
    return Registration(rank=rank, argv=["train"], started_at=1.0, **mine)


@pytest.fixture
def meet(tmp_path):
    """Come to one meeting again and again, as processes do."""
    return lambda words=("a",): RecordingRoster(list(words), tmp_path)


def test_one_of_all_that_come_starts_the_sampler(meet):
    with ThreadPoolExecutor(8) as pool:
        come = [registration(rank, pid=1000 + rank) for rank in range(24)]
        locks = [lock for lock in pool.map(lambda one: meet().register(one, channel=False), come) if lock is not None]
    assert len(locks) == 1
    assert [one.rank for one in meet().registrations()] == list(range(24))
    os.close(locks[0])
    late = meet().register(registration(24), channel=False)
    assert late is not None  # the sampler was killed: the next one starts another
    os.close(late)


def test_who_comes_rings_for_the_sampler(meet):
    lock = meet().register(registration(0), channel=False)
    bell = meet().listen()
    poll = select.poll()
    poll.register(bell, select.POLLIN)
    assert not poll.poll(0)
    assert meet().register(registration(1, pid=2), channel=False) is None
    assert poll.poll(0)
    os.close(bell)
    os.close(lock)


def test_the_sampler_leaves_nothing_and_never_leaves_somebody_who_has_just_come(meet, tmp_path):
    lock = meet().register(registration(0), channel=True)
    known = {registration(0).name}
    assert meet().register(registration(1, pid=2), channel=True) is None
    assert not meet().leave(known)
    assert meet().leave(known | {one.name for one in meet().registrations()})
    assert list(tmp_path.iterdir()) == []
    os.close(lock)
    again = meet().register(registration(2), channel=False)
    assert again is not None
    os.close(again)


def test_a_rank_is_recorded_once_but_anew_when_its_launcher_restarts_it(meet):
    lock = meet().register(registration(3), channel=False)
    with pytest.raises(RankTaken, match="rank 3 is recorded already"):
        meet().register(registration(3, pid=2), channel=False)
    assert meet().register(registration(3, pid=2, attempt=1), channel=False) is None
    meet().withdraw(registration(3, pid=2))
    assert len(meet().registrations()) == 1
    os.close(lock)


def test_what_killed_samplers_left_is_swept_when_nobody_runs_there(meet):
    dead = meet(["dead"])
    os.close(dead.register(registration(0, pid=2**22 - 1), channel=True))
    widowed = meet(["its process still runs"])
    os.close(widowed.register(registration(0), channel=True))
    kept = meet(["sampled"])
    lock = kept.register(registration(0, pid=2**22 - 1), channel=False)
    meet().sweep()
    assert not dead.folder.exists()
    assert widowed.folder.exists()
    assert kept.folder.exists()
    os.close(lock)


def test_processes_meet_aside_where_somebody_else_has_taken_the_name(meet, tmp_path):
    (tmp_path / f"cordee-{os.getuid()}").symlink_to(tmp_path)
    folder = meet().folder
    folder.mkdir(parents=True)  # as a stranger's, with a rank that never was
    (folder / "1-1.json").write_text(json.dumps(asdict(registration(0, pid=2))))
    assert meet().registrations() == []
    lock = meet().register(registration(0), channel=True)
    assert meet().register(registration(1, pid=2), channel=False) is None
    assert [one.rank for one in meet().registrations()] == [0, 1]
    assert meet().folder.parent != tmp_path / f"cordee-{os.getuid()}"
    os.close(lock)


def test_where_nothing_can_be_made_the_refusal_says_where_and_what_next(tmp_path):
    tmp_path.chmod(0o777)  # whoever may write here may rename what others make
    with pytest.raises(RunFolderError, match="cannot meet") as raised:
        RecordingRoster(["a"], tmp_path).register(registration(0), channel=False)
    assert "TMPDIR" in str(raised.value)
