"""How many wait for a run, as each of them knows it."""

from __future__ import annotations

import os

import pytest

from cordee.runs.budget import TOGETHER_PER_S, SharedBudget
from cordee.runs.folder import RunFolder
from cordee.runs.waiting_clients import JOIN_COST, WaitingClients
from support.operations import counted


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder.create(tmp_path, "t-20261121T000000Z-aaaa")


def counts(clients: list[WaitingClients], begin: float, end: float) -> list[int]:
    """Let all of them go on for a while; return what each counts in the end."""
    now = begin
    while now < end:
        for one in clients:
            one.count(now)
        now += 1.0
    return [one.count(now) for one in clients]


@pytest.mark.parametrize("several", [1, 3, 40])
def test_each_knows_how_many_wait_and_asks_the_file_system_only_once(folder, several):
    clients = [WaitingClients(folder.root, 0.0) for _ in range(several)]
    with counted(folder.root) as operations:
        assert counts(clients, 0.0, 600.0) == [several] * several
    assert operations.total() <= JOIN_COST * several


def test_who_stops_waiting_is_not_counted_any_more(folder):
    clients = [WaitingClients(folder.root, 0.0) for _ in range(3)]
    counts(clients, 0.0, 60.0)
    clients.pop().close()
    assert counts(clients, 60.0, 80.0) == [2, 2]


def test_who_was_killed_is_counted_for_two_minutes_only(folder):
    clients = [WaitingClients(folder.root, 0.0) for _ in range(3)]
    counts(clients, 0.0, 60.0)
    killed = clients.pop()
    assert counts(clients, 60.0, 90.0) == [3, 3]
    assert counts(clients, 90.0, 240.0) == [2, 2]
    killed.close()


def test_the_slots_of_those_who_were_killed_are_free_for_others(folder):
    counts([killed := WaitingClients(folder.root, 0.0)], 0.0, 60.0)
    left = (folder.control / "waiting").read_bytes()
    killed.close()
    (folder.control / "waiting").write_bytes(left * (4096 // len(left)))
    client = WaitingClients(folder.root, 0.0)
    assert counts([client], 0.0, 60.0)[0] > 1
    assert counts([client], 60.0, 180.0) == [1]
    client.close()
    assert not any((folder.control / "waiting").read_bytes())


def test_who_were_held_up_for_an_hour_count_each_other_again_within_a_minute(folder):
    clients = [WaitingClients(folder.root, 0.0) for _ in range(3)]
    counts(clients, 0.0, 60.0)
    counts(clients[:1], 60.0, 3600.0)
    assert counts(clients, 3600.0, 3660.0) == [3, 3, 3]
    assert counts(clients, 7260.0, 7320.0) == [3, 3, 3]


@pytest.mark.parametrize("several", [1, 3, 10, 60])
def test_however_many_wait_they_may_ask_one_operation_a_second_together(folder, several):
    budgets = [SharedBudget(folder.root, 1.0, 60.0, 0.0) for _ in range(several)]
    asked = 0
    for now in range(0, 900, 15):
        for budget in budgets:
            budget.share(float(now))
            while budget.buy(1.0, float(now)):
                asked += now >= 300
    assert 0.9 <= asked / 600.0 <= 1.1 * TOGETHER_PER_S


def test_a_command_that_is_over_at_once_leaves_nothing(folder):
    WaitingClients(folder.root, 0.0).count(1.0)
    assert not (folder.control / "waiting").exists()


def test_whose_slot_was_taken_by_another_finds_a_new_one(folder):
    clients = [WaitingClients(folder.root, 0.0) for _ in range(3)]
    counts(clients, 0.0, 60.0)
    path = folder.control / "waiting"
    slots = [path.read_bytes()[at : at + 16] for at in range(0, path.stat().st_size, 16)]
    taken = next(slot for slot in slots if any(slot))
    with open(path, "r+b") as file:  # all three at the same place, the others' free
        file.write(b"".join(taken if any(slot) else slot for slot in slots))
    assert counts(clients, 60.0, 400.0) == [3, 3, 3]


@pytest.mark.parametrize("kind", ["folder", "link", "FIFO"])
def test_who_cannot_write_the_file_asks_as_one_of_many_and_does_not_ask_for_it_all_the_time(folder, tmp_path, kind):
    path = folder.control / "waiting"
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(path)
    client = WaitingClients(folder.root, 0.0)
    with counted(folder.root) as operations:
        assert counts([client], 0.0, 600.0) == [10]
    assert operations.total() <= 5
    assert not (tmp_path / "elsewhere").exists()
