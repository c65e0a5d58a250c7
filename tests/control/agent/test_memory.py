"""Where agent and ranks meet on a node: made by this user alone, whoever was there first; left to nobody, and swept."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cordee.control.agent.ranks import channels
from cordee.control.agent.ranks.channels import NoRoom, RankChannels
from cordee.control.agent.ranks.unread_channels import may_go
from cordee.control.launch.srun.handover import ERR, OUT, WORD, Handover, RankOrder
from cordee.control.supervisor.disks.startup import SUPERVISOR
from cordee.machine import node_folder as memory
from cordee.machine.node_folder import NodeFolder, folders_of, name_of_user, sweep_abandoned
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter, read_journal
from cordee.wire.channel import ChannelWriter


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two places like /dev/shm and /tmp: everybody may write there, and rename only what is their own."""
    found = [tmp_path / "memory", tmp_path / "disk"]
    for place in found:
        place.mkdir()
        place.chmod(0o1777)
    for module in (memory, channels):
        monkeypatch.setattr(module, "memory_places", lambda: found)
    return found


def stranger_was_first(place):
    """Make this user's folder as somebody else: readable and writable for all, so that they can swap what lies in it."""
    folder = place / name_of_user()
    folder.mkdir()
    folder.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(folder, 1, 1)
    return folder


def test_a_run_goes_elsewhere_when_a_stranger_has_its_name_and_the_log_says_so(places, capfd):
    taken = stranger_was_first(places[0])
    mine = RankChannels("run-1", "n1")
    ChannelWriter(mine.create(1, 0)).write(7, {"loss": 1.0})
    assert list(taken.iterdir()) == []
    assert f"{taken} is not this user's alone; this run uses {mine.folder}" in capfd.readouterr().err
    again = RankChannels("run-1", "n1")  # the agent was killed: the next one takes over what it left
    assert again.folder == mine.folder
    assert again.read()[1] == {"1-0": mine.read()[1]["1-0"]}
    again.remove()
    assert [path for path in places[0].iterdir() if path != taken] == []


def test_a_place_without_room_is_passed_over_and_without_any_the_reasons_are_said(places, monkeypatch):
    create, told = channels.create_channel, []

    def full(path):
        if str(path).startswith(tuple(map(str, full.places))):
            raise OSError(28, "No space left on device")
        create(path)

    monkeypatch.setattr(channels, "create_channel", full)
    full.places = places[:1]
    found = RankChannels("run-1", "n1", told.append)
    assert Path(found.create(1, 0)).is_relative_to(places[1])
    assert told == [f"channels of ranks lie in {places[1]}, not in memory: {places[0]}: No space left on device"]
    full.places = places
    with pytest.raises(NoRoom, match=f"rank 1 needs 1.05 MB.*{places[0]}: No space.*{places[1]}: No space"):
        found.create(1, 1)


def test_only_what_nobody_holds_and_nobody_used_of_late_is_swept(places):
    used, fresh, left = (NodeFolder(places[0], run, "n1") for run in ("used", "fresh", "left"))
    for folder in (fresh, left):
        folder.release()
    (left.path / "1-0.channel").write_bytes(bytes(1 << 20))
    for folder in (used, left):
        os.utime(folder.path / "in-use", (time.time() - 86400,) * 2)
    supervisors = NodeFolder(places[1], "gone", SUPERVISOR)
    supervisors.release()
    os.utime(supervisors.path / "in-use", (time.time() - 86400,) * 2)
    assert set(sweep_abandoned()) == {left.path, supervisors.path}
    assert [folder.path.exists() for folder in (used, fresh, left)] == [True, True, False]
    assert not supervisors.path.parent.exists()
    used.touch()
    used.release()
    assert sweep_abandoned() == []


@pytest.fixture
def left(places, tmp_path):
    """A run of which 20 steps are stored, and 5 lie unread in the memory of n1, where its agent was killed an hour ago."""
    folder = RunFolder.create(tmp_path, "left-20261121T000000Z-abcd")
    JournalWriter(folder.journal, "supervisor-1", 1).append("submitted", nodes=1)
    agent = RankChannels(folder.id, "n1", root=folder.root)
    writer = ChannelWriter(agent.create(2, 3))
    for step in range(25):
        writer.write(step, {"loss": 1.0})
        if step == 19:
            agent.acknowledge(agent.read()[1])
    unused_for(agent.folder, 3600)
    return folder


def unused_for(node_folder, seconds):
    """As if the agent had been killed so long ago."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{fd}") == str(node_folder / "in-use"):
                os.close(int(fd))
    os.utime(node_folder / "in-use", (time.time() - seconds,) * 2)


def findings(folder):
    return [event["finding"] for event in read_journal(folder.journal) if event["event"] == "finding"]


def test_what_nobody_has_read_is_kept_while_its_run_may_come_back_and_read_by_its_next_agent(left):
    assert sweep_abandoned(may_go=may_go) == []
    again = RankChannels(left.id, "n1", root=left.root)
    assert sweep_abandoned(0.0, may_go=may_go) == []
    assert not again.drained
    again.acknowledge(again.read()[1])
    assert again.drained
    assert findings(left) == []


@pytest.mark.parametrize("over", ["it has ended", "a day has passed"])
def test_what_is_swept_unread_is_a_finding_of_its_run_with_its_steps_and_ranks(left, over):
    (node_folder,) = folders_of(left.id, "n1")
    if over == "it has ended":
        JournalWriter(left.journal, "supervisor-1", 1, 1).append(
            "ended", state="failed", exit_code=1, reason="", text=""
        )
    else:
        os.utime(node_folder / "in-use", (time.time() - 2 * 86400,) * 2)
    assert sweep_abandoned(may_go=may_go) == [node_folder]
    (finding,) = findings(left)
    assert (finding["rule"], finding["severity"]) == ("metrics-lost", "warn")
    assert "5 events that rank 3 logged on n1, steps 20 to 24, were removed unread" in finding["text"]
    (lost,) = finding["evidence"]["channels"]
    assert lost == {"attempt": 2, "rank": 3, "events": 5, "first_step": 20, "last_step": 24}


def test_what_is_left_of_a_run_whose_journal_cannot_be_read_is_kept_for_a_day(left):
    (node_folder,) = folders_of(left.id, "n1")
    shutil.rmtree(left.journal)
    assert sweep_abandoned(may_go=may_go) == []
    os.utime(node_folder / "in-use", (time.time() - 2 * 86400,) * 2)
    assert sweep_abandoned(may_go=may_go) == [node_folder]


def test_channels_that_are_broken_or_no_channels_hold_nothing_up(left):
    (node_folder,) = folders_of(left.id, "n1")
    os.truncate(node_folder / "2-3.channel", 1 << 30)
    (node_folder / "2-4.channel").touch()
    (node_folder / "x-5.channel").mkdir()
    assert sweep_abandoned(may_go=may_go) == [node_folder]


def test_what_is_left_of_a_run_whose_folder_is_gone_is_swept(left):
    shutil.rmtree(left.root)
    assert len(sweep_abandoned(may_go=may_go)) == 1


def test_a_folder_that_is_being_swept_is_made_again_by_who_needs_it(places):
    left = NodeFolder(places[0], "run", "n1")
    left.release()
    sweeper = os.open(left.path / "in-use", os.O_RDWR)
    fcntl.flock(sweeper, fcntl.LOCK_EX)
    comes = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from cordee.machine.node_folder import NodeFolder\n"
            "print('comes', flush=True); NodeFolder(Path(sys.argv[1]), 'run', 'n1'); print('has it')",
            str(places[0]),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert comes.stdout.readline() == "comes\n"
    (left.path / "in-use").unlink()
    with contextlib.suppress(OSError):  # who needs it may have made its file in the meantime
        left.path.rmdir()
    os.close(sweeper)
    assert comes.communicate(timeout=30)[0] == "has it\n"
    assert (left.path / "in-use").exists()


def plant(meeting, argv, env):
    """Write an order as an agent does, and open the FIFOs for reading."""
    opened = meeting.open_for_reading()
    whole = {"PATH": os.environ["PATH"], "CORDEE_TASK": "run/n1/1/rank-1-0", **env}
    meeting.write_order(RankOrder(tuple(argv), whole, "/", True))
    return opened


def test_a_rank_that_srun_started_takes_no_order_from_a_stranger(places, tmp_path):
    taken = stranger_was_first(places[0]) / "run-1" / "n1"
    taken.mkdir(parents=True)
    taken.chmod(0o777)
    opened = plant(Handover(taken, 1, 0), ["touch", str(tmp_path / "stranger's")], {})
    env = {"SLURMD_NODENAME": "n1", "SLURM_PROCID": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-m", "cordee.control.launch.srun.rank", str(taken.parent), "1"]
    rank = subprocess.Popen(argv, env={**os.environ, **env}, cwd="/")
    (folder,) = [NodeFolder(places[0], "run-1", "n1")]
    opened |= {f"my {name}": end for name, end in plant(Handover(folder.path, 1, 0), ["echo", "mine"], {}).items()}
    assert rank.wait(timeout=60) == 0
    assert os.read(opened[f"my {OUT}"], 100) == b"mine\n"
    assert not (tmp_path / "stranger's").exists()
    assert list(folders_of("run-1", "n1")) == [folder.path]
    for end in opened.values():
        os.close(end)
    assert {WORD, OUT, ERR} < set(opened)


@pytest.mark.parametrize("order", ["[]", "no JSON", '{"argv": "echo", "env": {}, "cwd": "/", "whole": true}'])
def test_an_order_that_cannot_be_understood_ends_the_launcher_with_words(places, order):
    folder = NodeFolder(places[0], "run-1", "n1")
    (folder.path / "1-0.order").write_text(order)
    env = {"SLURMD_NODENAME": "n1", "SLURM_PROCID": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    argv = [sys.executable, "-m", "cordee.control.launch.srun.rank", str(folder.path.parent), "1"]
    rank = subprocess.run(argv, env={**os.environ, **env}, cwd="/", capture_output=True, text=True, check=False)
    assert rank.returncode == 125
    assert "cordee: rank 0 on n1 does not understand its agent: " in rank.stderr
    assert "order" in rank.stderr


@pytest.mark.parametrize("made", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_an_order_that_is_no_plain_file_is_refused_at_once(places, made):
    folder = NodeFolder(places[0], "run-1", "n1")
    made(folder.path / "1-0.order")
    with pytest.raises(OSError):
        Handover(folder.path, 1, 0).read_order()


def test_what_others_remove_meanwhile_does_not_end_a_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "memory_places", lambda: [tmp_path])
    kept, going = NodeFolder(tmp_path, "stays", "n1"), tmp_path / name_of_user() / "goes"
    going.mkdir()
    real = os.scandir

    def scandir(path="."):
        if str(path).endswith(name_of_user()) and going.is_dir():
            entries = list(real(path))
            going.rmdir()
            return _Entries(entries)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert sweep_abandoned() == []
    assert not going.exists()
    kept.remove()


class _Entries(list):
    """What `os.scandir` returned."""

    def __enter__(self):
        return iter(self)

    def __exit__(self, *error):
        return None
