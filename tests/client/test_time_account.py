"""What looks are summed up to: a made-up main thread whose time is known, seen at moments."""

from __future__ import annotations

import itertools
import random

import pytest

from cordee.client.device_steps import StepShares
from cordee.client.kinds import COMMUNICATION, COMPUTE, DATA, SAVING, UNKNOWN
from cordee.client.main_thread import Glance
from cordee.client.steps import BETWEEN, WITHIN, Mark
from cordee.client.time_account import PERIOD_NS, TimeAccount

MS = 10**6
S = 10**9


def looked_at(step: list[tuple[int, bool, float]], seconds: float, delayed: float = 0.0, seed: int = 1) -> TimeAccount:
    """Return the account of a thread that repeats a step for so long.

    Args:
        step: its parts: kind, whether it runs, and seconds.
        seconds: how long.
        delayed: the share of its running in which it only wants to run.
        seed: of the moments of the looks.
    """
    account, moments = TimeAccount(), random.Random(seed)
    at, whole = 0, sum(int(part * S) for _, _, part in step)
    ran_in_step = sum(int(part * S) for _, runs, part in step if runs)
    while at < seconds * S:
        steps, inside = divmod(at, whole)
        ran = steps * ran_in_step
        kind, runs = step[0][:2]
        for part_kind, part_runs, part in step:
            here = min(inside, int(part * S))
            ran += here if part_runs else 0
            kind, runs = part_kind, part_runs
            inside -= here
            if here < int(part * S):
                break
        account.take(Glance(at, int(ran * (1 - delayed)), int(ran * delayed), 0, runs, kind))
        at += int(PERIOD_NS * moments.uniform(0.5, 1.5))
    return account


def shares(account: TimeAccount) -> list[float]:
    sums = account.sums(1, 0)
    return [kind.ns / sums.looked_ns for kind in sums.kinds]


def test_running_and_waiting_is_told_exactly_however_few_the_looks_are():
    account = looked_at([(COMPUTE, True, 0.113), (COMMUNICATION, False, 0.037)], 200)
    compute, data, communication, saving = shares(account)
    assert compute == pytest.approx(113 / 150, abs=0.01)
    assert communication == pytest.approx(37 / 150, abs=0.01)
    assert data == saving == 0


def test_kinds_that_look_alike_to_the_processor_are_told_by_the_looks():
    parts = [
        (COMPUTE, True, 0.1),
        (DATA, True, 0.05),
        (DATA, False, 0.05),
        (COMMUNICATION, False, 0.1),
        (SAVING, False, 0.1),
    ]
    account = looked_at(parts, 400)
    assert shares(account) == pytest.approx([0.25, 0.25, 0.25, 0.25], abs=0.04)


def test_what_is_not_known_is_in_no_kind():
    account = looked_at([(UNKNOWN, True, 0.1), (UNKNOWN, False, 0.1)], 20)
    assert shares(account) == [0, 0, 0, 0]
    assert account.sums(1, 0).looked_ns > 19 * S


def test_waiting_for_a_processor_is_part_of_what_the_rank_was_at():
    account = looked_at([(COMPUTE, True, 0.1), (COMMUNICATION, False, 0.1)], 100, delayed=0.4)
    assert shares(account)[COMPUTE] == pytest.approx(0.5, abs=0.01)
    sums = account.sums(1, 0)
    assert sums.delayed_ns / sums.looked_ns == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("stop", [0.02, 0.05, 0.3, 2.0])
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_process_that_is_stopped_now_and_then_is_not_taken_for_one_that_waits(stop: float, share: float):
    """It computes all the time that it is given."""
    account, moments = TimeAccount(), random.Random(2)
    pauses, begin = [], 0.0
    while begin < 2000:
        begin += stop * (1 - share) / share * moments.uniform(0.5, 1.5)
        pauses.append((begin, begin + stop))
        begin += stop
    due, at, paused, ahead = 0.0, 0.0, 0.0, iter(pauses)
    begin, end = next(ahead)
    while at < 1900:
        due = at + PERIOD_NS / S * moments.uniform(0.5, 1.5)
        while end <= due:
            paused += end - begin
            begin, end = next(ahead)
        late, at = (end - due, end) if begin < due else (0.0, due)
        inside = end - begin if late else 0.0
        late_ns = int(late * S) if late > 0.0015 else 0
        account.take(Glance(int(at * S), int((at - paused - inside) * S), 0, late_ns, True, COMPUTE))
    sums = account.sums(1, 0)
    assert sums.unseen_ns / sums.looked_ns == pytest.approx(share, rel=0.4 if stop < 0.03 else 0.2)
    assert sums.unseen_ns + sums.kinds[COMPUTE].ns <= sums.looked_ns


def test_a_late_look_of_a_thread_that_ran_meanwhile_is_no_pause():
    account = TimeAccount()
    account.take(Glance(0, 0, 0, 0, True, COMPUTE))
    account.take(Glance(S, S - 2 * MS, 0, 50 * MS, True, COMPUTE))
    assert account.sums(1, 0).unseen_ns == 0


def test_stays_are_summed_up_by_their_length():
    account = TimeAccount()
    kinds = [COMPUTE] * 5 + [SAVING] * 10 + [COMPUTE] * 2 + [UNKNOWN] * 3 + [SAVING]
    for at, kind in enumerate(kinds):
        account.take(Glance(at * S, 0, 0, 0, False, kind))
    compute, _, _, saving = account.sums(1, 0).kinds
    assert (compute.looks, compute.longest_ns, compute.squares_ms2) == (6, 4 * S, (16 + 4) * 10**6)
    assert (saving.looks, saving.longest_ns, saving.squares_ms2) == (11, 10 * S, 101 * 10**6)
    account.open_window()
    account.take(Glance(len(kinds) * S, 0, 0, 0, False, SAVING))
    assert account.sums(2, 0).kinds[SAVING].longest_ns == 2 * S, "a stay goes on from one window to the next"
    assert account.sums(2, 0).kinds[COMPUTE].longest_ns == 0


def test_sums_only_grow_whatever_the_looks_say():
    values = random.Random(3)
    account, before = TimeAccount(), TimeAccount().sums(1, 0)
    at = 0
    for _ in itertools.repeat(None, 2000):
        at += values.choice([0, 1, 10 * MS, 200 * MS, 30 * S, -5 * MS])
        used, delayed, late = (values.choice([0, 1, at, 2 * at, S]) for _ in range(3))
        account.take(Glance(at, used, delayed, late, values.random() < 0.5, values.randrange(5)))
        sums = account.sums(1, 0)
        assert min(new - old for new, old in zip(sums[1:5], before[1:5], strict=True)) >= 0
        for new, old in zip(sums.kinds, before.kinds, strict=True):
            assert min(one - other for one, other in zip(new, old, strict=True)) >= 0
        assert sum(kind.ns for kind in sums.kinds) + sums.unseen_ns <= sums.looked_ns + 10
        before = sums


def test_time_goes_by_how_a_device_spends_its_steps_where_that_is_known_and_no_save_is_seen():
    account, device = TimeAccount(), StepShares(0.6, 0.1, 0.3, 0.5)
    account.take(Glance(0, 0, 0, 0, True, UNKNOWN))
    account.take(Glance(10 * S, 5 * S, 0, 0, True, UNKNOWN), (), device)
    assert [kind.ns for kind in account.sums(1, 0).kinds] == [6 * S, 1 * S, 3 * S, 0]
    compute = account.sums(1, 0).kinds[COMPUTE]
    assert (compute.longest_ns, compute.squares_ms2) == (300 * MS, 20 * 300**2)
    account.take(Glance(14 * S, 9 * S, 0, 0, True, SAVING), (), device)
    assert [kind.ns for kind in account.sums(1, 0).kinds] == [6 * S, 1 * S, 3 * S, 4 * S]


def test_parts_of_a_step_that_the_script_tells_are_told_exactly():
    """Within a step it runs for 60 ms and waits for 20; between two it waits for 20: all that is seen are looks within."""
    account = TimeAccount()
    account.take(Glance(0, 0, 0, 0, False, DATA), [Mark(0, 0, BETWEEN)])
    for look in range(1, 400):
        began, used = (look - 1) * 200 * MS, (look - 1) * 120 * MS
        marks = [
            Mark(began + 20 * MS, used, WITHIN),
            Mark(began + 100 * MS, used + 60 * MS, BETWEEN),
            Mark(began + 120 * MS, used + 60 * MS, WITHIN),
        ]
        kind, runs = ((COMPUTE, True), (COMMUNICATION, False))[look % 2]
        account.take(Glance(began + 200 * MS, used + 120 * MS, 0, 0, runs, kind), marks)
        between = Mark(began + 200 * MS, used + 120 * MS, BETWEEN)
        account.take(Glance(began + 200 * MS + 1, used + 120 * MS, 0, 0, False, DATA), [between])
    assert shares(account) == pytest.approx([0.6, 0.2, 0.2, 0.0], abs=0.01)


def test_after_a_pause_of_looking_the_time_between_is_not_looked_at():
    account = TimeAccount()
    account.take(Glance(0, 0, 0, 0, True, COMPUTE))
    account.pause()
    account.take(Glance(100 * S, 100 * S, 0, 0, True, COMPUTE))
    assert account.sums(1, 0).looked_ns == 0
