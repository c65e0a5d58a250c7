"""Who is blamed for a hang, and who is not: from what agents left in the run's folder."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from cordee.systems.explain.hang_report import hang_findings

from .made_hang import WAITS, MadeHang, stack

OWN = ("/home/me/train.py", 55, "evaluate")
LOADER = ("/x/site-packages/torch/utils/data/dataloader.py", 1250, "_try_get_data")
SAVE = ("/x/site-packages/torch/serialization.py", 850, "save")


@pytest.fixture
def made(tmp_path):
    return MadeHang(tmp_path)


def one(made):
    (finding,) = hang_findings(made.run, 1)
    return finding


@pytest.mark.parametrize(
    ("kind", "stacks", "about"),
    [
        ("hang-missing-rank", stack(OWN), {}),
        ("hang-stopped", None, {"state": "T", "why": "stopped", "wchan": "do_signal_stop"}),
        ("hang-gil", stack(OWN), {"why": "silent", "state": "R", "beat_age_s": 61.0}),
        ("hang-data-loader", stack(LOADER, OWN), {"children": [{"pid": 1, "name": "python", "state": "S"}]}),
        ("hang-checkpoint", stack(SAVE, OWN), {}),
        ("hang-file-system", stack(SAVE, OWN), {"state": "D", "wchan": "nfs_wait_on_request"}),
        ("hang-input", stack(OWN), {"wchan": "pipe_read", "open": "FIFO /tmp/answers"}),
        ("hang-teardown", stack(("/x/site-packages/torch/d.py", 9, "destroy_process_group"), OWN), {}),
    ],
)
def test_the_rank_that_did_not_come_is_named_with_what_it_does(made, kind, stacks, about):
    made.rank(3, stacks, enqueued=16, completed=16, **about)
    finding = one(made)
    assert (finding.rule, finding.evidence["ranks"], finding.evidence["nodes"]) == (kind, [3], ["node-1"])
    assert finding.evidence["waiting"] == [0, 1, 2, 4, 5, 6, 7]
    assert finding.evidence["sequence"] == 17
    assert "/home/me/train.py:40 (step)" in finding.text  # where the others wait
    if stacks is not None:
        assert finding.evidence["where"] == "/home/me/train.py:55 (evaluate)"
    assert finding.next


@pytest.fixture
def held(tmp_path):
    """Four ranks that have called collective 8; the GPU of rank 3 has not begun it, as their dumps say."""
    made = MadeHang(tmp_path, world=4)
    dumps = tmp_path / "flight" / "attempt-1"
    dumps.mkdir(parents=True)
    for path in (Path(__file__).parent / "recorded_nccl" / "kernel-timed").iterdir():
        (dumps / path.name).write_bytes(path.read_bytes())
    for rank in range(4):
        made.rank(rank, enqueued=8, completed=7)
    return made


def test_the_gpu_that_has_not_begun_what_all_have_called_is_named(held):
    finding = one(held)
    assert (finding.rule, finding.evidence["ranks"], finding.evidence["sequence"]) == ("hang-gpu", [3], 8)
    assert "its GPU has not started it" in finding.text
    assert "a kernel that does not end" in finding.next


def test_a_rank_that_is_stopped_says_more_than_a_gpu_that_has_not_begun(held):
    held.rank(1, None, enqueued=7, completed=7, state="T", why="stopped")
    finding = one(held)
    assert (finding.rule, finding.evidence["ranks"]) == ("hang-stopped", [1])


def test_ranks_that_stand_at_one_line_are_one_finding(made):
    for rank in (2, 3):
        made.rank(rank, stack(OWN), enqueued=16, completed=16)
    finding = one(made)
    assert finding.evidence["ranks"] == [2, 3]
    assert "ranks 2-3 on node-1 have not gone on" in finding.text


def test_who_waits_for_another_is_not_blamed(made):
    groups = [{"name": "0", "size": 8, "enqueued": 16, "completed": 16}]
    made.rank(2, WAITS, groups=[*groups, {"name": "tp", "size": 2, "enqueued": 5, "completed": 4}])
    made.rank(3, stack(OWN), groups=[*groups, {"name": "tp", "size": 2, "enqueued": 4, "completed": 4}])
    assert one(made).evidence["ranks"] == [3]


def test_half_of_the_ranks_are_not_blamed(made):
    for rank in range(5):
        made.rank(rank, stack(OWN), enqueued=16, completed=16)
    finding = one(made)
    assert (finding.rule, finding.evidence["ranks"]) == ("hang-unknown", [])
    assert finding.evidence["suspects"] == [0, 1, 2, 3, 4]


def test_where_all_ranks_stand_by_themselves_it_is_said_how(made):
    for rank in range(8):
        made.rank(rank, stack(OWN), groups=[], wchan="wait_for_partner", open=f"FIFO /tmp/answers-{rank}")
    finding = one(made)
    assert (finding.rule, finding.evidence["ranks"]) == ("hang-unknown", [])
    assert "8 of 8 ranks stand by themselves" in finding.text
    assert "rank 0 at /home/me/train.py:55 (evaluate): it waits for FIFO /tmp/answers-0" in finding.text


def test_where_all_ranks_stand_alike_outside_of_calls_it_is_said_at_which_line(made):
    for rank in range(8):
        made.rank(rank, stack(OWN), enqueued=16, completed=16, wchan="hrtimer_nanosleep")
    finding = one(made)
    assert (finding.rule, finding.evidence["ranks"]) == ("hang-unknown", [])
    assert finding.text.endswith("tells the ranks apart; 8 ranks at /home/me/train.py:55 (evaluate)")


def test_a_call_that_all_have_made_is_nobody_s_fault(made):
    finding = one(made)
    assert (finding.rule, finding.evidence["ranks"]) == ("hang-unknown", [])
    assert "all 8 ranks" in finding.text
    assert "network" in finding.text


def test_a_rank_that_has_ended_is_named_where_the_others_need_it(made):
    made.ended(5)
    finding = one(made)
    assert (finding.rule, finding.evidence["ranks"]) == ("hang-ended", [5])
    assert "exit code 0" in finding.text


def test_a_rank_of_which_nothing_was_heard_is_suspected_and_not_blamed(made):
    made.gone(6)
    finding = one(made)
    assert (finding.rule, finding.evidence["ranks"], finding.evidence["suspects"]) == ("hang-unknown", [], [6])


def test_without_torch_the_one_that_is_stopped_is_named(made):
    for rank in range(8):
        made.rank(rank, None, groups=[])
    made.rank(1, None, groups=[], state="T", why="stopped")
    assert (one(made).rule, one(made).evidence["ranks"]) == ("hang-stopped", [1])


def test_of_a_stopped_rank_the_line_is_told_where_it_was_seen_last(made):
    made.rank(
        1, None, enqueued=16, completed=16, state="T", why="stopped", last_seen_at="/home/me/train.py:26 (tokens)"
    )
    finding = one(made)
    assert (finding.rule, finding.evidence["where"]) == ("hang-stopped", "/home/me/train.py:26 (tokens)")
    assert "where it was seen last" in finding.text


@pytest.mark.parametrize(
    ("kind", "about"),
    [
        ("hang-quiet", {}),
        ("hang-quiet", {"wchan": "inet_csk_accept", "open": "socket:[4]"}),
        ("hang-stopped", {"state": "T", "why": "stopped"}),
        ("hang-unknown", {"groups": [{"name": "0", "size": 8, "enqueued": 1, "completed": 1}]}),
    ],
)
def test_a_program_that_tells_of_no_steps_may_just_wait(tmp_path, kind, about):
    made = MadeHang(tmp_path, quiet=True)
    for rank in range(8):
        made.rank(rank, None, **({"groups": []} | (about if rank == 0 or "groups" in about else {})))
    finding = one(made)
    assert (finding.rule, finding.severity) == (kind, "error" if kind == "hang-stopped" else "warn")


def test_a_hanging_mount_and_the_kernel_s_words_are_told_with_the_node(made):
    made.on_node("node-1", hanging=["/scratch"], kernel_log=["nfs: server fs not responding"])
    made.rank(3, stack(SAVE, OWN), enqueued=16, completed=16, state="D", wchan="rpc_wait_bit_killable")
    finding = one(made)
    assert "/scratch does not answer on node-1" in finding.text
    assert finding.evidence["hardware"] == ["nfs: server fs not responding"]


def test_a_long_evaluation_is_called_busy(tmp_path):
    made = MadeHang(tmp_path, busy=True)
    made.rank(0, stack(OWN), enqueued=16, completed=16)
    finding = one(made)
    assert (finding.rule, finding.evidence["ranks"]) == ("hang-busy", [0])
    assert "[hang] after" in finding.next


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"groups": 5, "pid": "x", "children": [1, {"pid": []}]}',
        '{"groups": [{"name": [], "enqueued": "9"}]}',
        "\0\0",
    ],
)
def test_what_a_rank_wrote_cannot_break_the_verdict_on_another(made, text):
    (made.folder / "rank-7.json").write_text(text)
    (made.folder / "rank-6.stacks").write_bytes(b"\xff\xfe Thread 0x1 (most recent call first):\n  File x")
    (made.run / "flight" / "attempt-1").mkdir(parents=True)
    (made.run / "flight" / "attempt-1" / "rank-0.pkl").write_bytes(pickle.dumps(Canary(made.run / "canary")))
    made.rank(3, stack(OWN), enqueued=16, completed=16)
    assert one(made).evidence["ranks"] == [3]
    assert not (made.run / "canary").exists()


def test_a_fifo_in_place_of_a_file_is_passed_over(made):
    path = made.folder / "rank-4.json"
    path.unlink()
    os.mkfifo(path)
    made.rank(3, stack(OWN), enqueued=16, completed=16)
    assert one(made).evidence["ranks"] == [3]
