"""Digests of ranks: the growth of what each pulse shows, in windows, whatever becomes of the processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordee.systems.explain.node import rank_times
from cordee.systems.explain.node.pulses import RankProcess
from cordee.systems.explain.node.rank_times import RankTimes
from cordee.wire.messages import KindTimes
from cordee.wire.pulse import KindSums, PulseReader, PulseWriter, TimeSums

S = 10**9


class Rank:
    """A rank's pulse, and its agent's end of it."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self.writer = PulseWriter(str(folder), "1", False)
        self.writer.beat(1, rank, 0, 0, [])
        self.process = RankProcess(rank, os.getpid(), 1, PulseReader(self.writer.path), 0.0)

    def spends(self, looked: float, steps: int = 0, **sums: int) -> None:
        """Show that it was looked at for so many seconds in all, of which it computed a half and waited a quarter."""
        kinds = (
            *(KindSums(int(looked * S / 2), int(looked * 5), S, int(looked * 1000)), KindSums()),
            *(KindSums(int(looked * S / 4), int(looked), S // 2, 0), KindSums()),
        )
        self.writer.spent(TimeSums(self.writer.wanted, int(looked * S), kinds=kinds)._replace(**sums), steps)
        self.process.look(0.0)

    @property
    def told(self) -> tuple[int, RankProcess]:
        return self.rank, self.process


@pytest.fixture
def rank(tmp_path: Path) -> Rank:
    return Rank(tmp_path, 3)


@pytest.fixture
def times(rank: Rank) -> RankTimes:
    """Windows that have begun, with one rank."""
    made = RankTimes(True)
    assert not made.look([rank.told], 100.0)
    assert rank.writer.wanted == 1
    return made


def test_a_digest_is_what_has_grown_in_a_window(rank: Rank, times: RankTimes):
    rank.spends(4.0, 5, delayed_ns=S)
    assert not times.look([rank.told], 105.0)
    assert times.taken() == ()
    rank.spends(9.5, 12, delayed_ns=2 * S, unseen_ns=S // 4, faults=3)
    assert times.look([rank.told], 110.0)
    (digest,) = times.taken()
    assert digest[:3] == (3, 9.5, 12)
    assert digest.compute == KindTimes(4.75, 47, 1.0, 0.0095)
    assert digest.communication == KindTimes(2.375, 9, 0.5, 0.0)
    assert digest.data == digest.saving == KindTimes(0.0, 0, 0.0, 0.0)
    assert (digest.delayed_s, digest.unseen_s, digest.faults) == (2.0, 0.25, 3)
    assert rank.writer.wanted == 2
    rank.spends(19.5, 20, delayed_ns=2 * S, unseen_ns=S // 4, faults=3)
    times.look([rank.told], 120.0)
    (digest,) = times.taken()
    assert (digest.window_s, digest.steps, digest.compute.seconds, digest.delayed_s) == (10.0, 8, 5.0, 0.0)
    assert times.taken() == ()


def test_windows_that_nobody_takes_are_kept_for_a_while_in_their_order(rank: Rank, times: RankTimes):
    for window in range(1, 16):
        rank.spends(10.0 * window, window)
        times.look([rank.told], 100.0 + 10 * window)
    assert [digest.rank for digest in times.taken()] == [3] * 12


def test_a_process_that_takes_the_place_of_another_begins_at_nothing(rank: Rank, times: RankTimes, tmp_path: Path):
    rank.spends(6.0, 50)
    another = Rank(tmp_path, 3)
    times.look([another.told], 106.0)
    assert another.writer.wanted == 1
    another.spends(3.5, 4)
    times.look([another.told], 110.0)
    assert [(digest.rank, digest.window_s, digest.steps) for digest in times.taken()] == [(3, 3.5, 4)]


def test_an_agent_that_comes_later_tells_what_happens_from_then_on(rank: Rank):
    rank.process.want(7)
    rank.spends(500.0, 1000)
    later = RankTimes(True)
    later.look([rank.told], 100.0)
    assert rank.writer.wanted == 8
    rank.spends(510.0, 1010)
    later.look([rank.told], 110.0)
    (digest,) = later.taken()
    assert (digest.window_s, digest.steps) == (10.0, 10)


@pytest.mark.parametrize(
    ("looked", "steps", "sums"),
    [
        (4.0, 20, {}),
        (19.0, 2, {}),
        (19.0, 20, {"delayed_ns": 0}),
        (19.0, 20, {"faults": 1 << 62}),
        (19.0, 20, {"unseen_ns": 9 * 10**18}),
        (19.0, 20, {"delayed_ns": 2**64 - 1}),
        (900.0, 20, {}),
        (2.0**33, 20, {}),
        (19.0, 1 << 63, {}),
        (19.0, 20, {"kinds": (KindSums(),) * 4}),
        (19.0, 20, {"kinds": (KindSums(2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1),) * 4}),
        (19.0, 20, {"kinds": (KindSums(6 * S, 1 << 60, S, 10**6), *(KindSums(6 * S, 99, S, 10**6),) * 3)}),
    ],
    ids=str,
)
def test_sums_that_went_back_or_cannot_be_are_no_digest_and_the_next_window_is(rank, times, looked, steps, sums):
    rank.spends(9.0, 10, delayed_ns=S)
    times.look([rank.told], 110.0)
    times.taken()
    rank.spends(looked, steps, **{"delayed_ns": S, **sums})
    times.look([rank.told], 120.0)
    assert times.taken() == ()
    rank.spends(29.0, 30, delayed_ns=S)
    times.look([rank.told], 130.0)
    times.taken()
    rank.spends(39.0, 40, delayed_ns=S)
    times.look([rank.told], 140.0)
    assert [(digest.window_s, digest.steps) for digest in times.taken()] == [(10.0, 10)]


def test_a_rank_that_was_not_looked_at_has_no_digest(rank: Rank, times: RankTimes):
    rank.spends(0.4, 1)
    times.look([rank.told], 110.0)
    assert times.taken() == ()


def test_what_is_wanted_changes_while_ranks_run(rank: Rank, times: RankTimes):
    rank.spends(9.0, 10)
    times.wanted = False
    times.look([rank.told], 110.0)
    assert (times.taken(), rank.writer.wanted) == (None, 0)
    rank.spends(9.1, 11)
    times.wanted = True
    times.look([rank.told], 111.0)
    assert rank.writer.wanted == 1
    rank.spends(18.0, 20)
    times.look([rank.told], 121.0)
    assert [(digest.window_s, digest.steps) for digest in times.taken()] == [(8.9, 9)]


def test_time_without_a_share_of_processors_is_that_of_all_control_groups_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from cordee.machine.cgroups import Cgroup

    own, above = tmp_path / "own", tmp_path / "above"
    for folder, line in ((own, "throttled_usec 0"), (above, "throttled_time 0")):
        folder.mkdir()
        (folder / "cpu.stat").write_text(f"nr_periods 5\nnr_throttled 0\n{line}\n")
    groups = [Cgroup(2, str(own)), Cgroup(1, str(above)), Cgroup(1, str(tmp_path / "gone"))]
    monkeypatch.setattr(rank_times, "groups_of", lambda controller, pid: groups)
    rank, times = Rank(tmp_path, 0), RankTimes(True)
    times.look([rank.told], 100.0)
    (own / "cpu.stat").write_text("nr_periods 9\nnr_throttled 2\nthrottled_usec 1500000\n")
    (above / "cpu.stat").write_text("nr_periods 9\nnr_throttled 2\nthrottled_time 500000000\n")
    rank.spends(10.0)
    times.look([rank.told], 110.0)
    (digest,) = times.taken()
    assert digest.throttled_s == 2.0
