"""Several servers of one model behind one address: by the requests, through failures, from one model to the next."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
import urllib.request

import pytest
from tests.systems.inference.conftest import TOKEN

from cordee.core.errors import CordeeError
from cordee.machine.processes.tree import children_of
from cordee.systems.inference.endpoint import MODELS
from cordee.systems.inference.pool.__main__ import limits_of
from cordee.systems.inference.pool.pool import PoolLimits
from cordee.systems.inference.pool.served import ServedModel, read_wanted, write_wanted
from cordee.systems.inference.traffic import LoadQuestion, measure

pytestmark = pytest.mark.usefixtures("real")


def streams(pool, at_once: int, requests: int, tokens: int = 4):
    return measure(LoadQuestion(pool.url, TOKEN, "m", ("x",), tokens), at_once, requests, lambda: len(pool.ready()))


def test_a_killed_server_is_started_again_and_only_its_own_requests_fail(pools):
    pool = pools(PoolLimits(2, 2))
    found: list = []
    thread = threading.Thread(target=lambda: found.append(streams(pool, 4, 80, 10)))
    thread.start()
    time.sleep(1)
    victim = pool.ready()[0]["pid"]
    os.kill(victim, signal.SIGKILL)
    thread.join(60)
    failed = [one.fault for one in found[0].streams if one.fault]
    assert len(failed) <= 4, failed  # of four at once, half were with it; as many come while it dies and still listens
    pool.until(lambda: len(pool.ready()) == 2 and victim not in [one["pid"] for one in pool.ready()])
    assert pool.state()["restarts"] == 1


def test_there_are_as_many_servers_as_requests_in_flight_need_and_fewer_again_after_a_calm(pools):
    pool = pools(PoolLimits(1, 3, in_flight=2, calm_s=0.5))
    level = streams(pool, 6, 24, 40)
    assert level.replicas[1] == 3
    assert not [one.fault for one in level.streams if one.fault]
    pool.until(lambda: len(pool.state()["instances"]) == 1)
    assert pool.ask()["choices"][0]["text"] == "a"


def test_another_model_is_taken_up_one_server_at_a_time_and_no_request_is_lost(pools):
    pool = pools(PoolLimits(2, 2))
    found: list = []
    thread = threading.Thread(target=lambda: found.append(streams(pool, 4, 120, 10)))
    thread.start()
    told: list[str] = []
    state = MODELS.roll(pool.volume, pool.model("b"), 60.0, told.append)
    assert state["model"].endswith("model-b")
    thread.join(60)
    assert not [one.fault for one in found[0].streams if one.fault]
    pool.until(lambda: len(pool.state()["instances"]) == 2)
    assert {pool.ask()["choices"][0]["text"] for _ in range(4)} == {"b"}
    MODELS.roll(pool.volume, None, 60.0, told.append)
    pool.until(lambda: {pool.ask()["choices"][0]["text"] for _ in range(4)} == {"a"})


@pytest.mark.parametrize("fault", ["broken", "sick"])
def test_a_model_whose_server_does_not_answer_is_refused_and_the_one_before_serves_on(pools, fault):
    pool = pools(PoolLimits(2, 2, ready_s=3.0))
    before = {one["pid"] for one in pool.ready()}
    with pytest.raises(CordeeError) as refused:
        MODELS.roll(pool.volume, pool.model("b", fault), 60.0, lambda _: None)
    assert "was refused" in refused.value.text
    assert "serves on" in refused.value.text
    assert {one["pid"] for one in pool.ready()} == before
    assert pool.ask()["choices"][0]["text"] == "a"
    MODELS.roll(pool.volume, pool.model("c"), 60.0, lambda _: None)
    pool.until(lambda: {pool.ask()["choices"][0]["text"] for _ in range(4)} == {"c"})


def test_each_server_has_gpus_of_its_own(pools):
    pool = pools(PoolLimits(2, 2, gpus=2), ("g0", "g1", "g2", "g3", "g4"))
    assert sorted(one["gpus"] for one in pool.ready()) == [["g0", "g1"], ["g2", "g3"]]
    assert {pool.ask()["choices"][0]["text"] for _ in range(6)} == {"ag0,g1", "ag2,g3"}


def test_who_has_no_token_is_refused_by_every_server(pools):
    pool = pools(PoolLimits(1, 1))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{pool.url}/health", timeout=10)
    assert refused.value.code == 401


@pytest.mark.gate
def test_a_killed_balancer_comes_back_and_its_workers_do_not_stay(pools):
    pool = pools(PoolLimits(2, 2))
    process = pool.pool._balancer._process
    workers = children_of(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    pool.until(lambda: pool.pool._balancer._process is not process and len(pool.pool._balancer.open) == 2)
    assert workers
    pool.until(lambda: not [pid for pid in workers if os.path.exists(f"/proc/{pid}/exe")])
    assert {pool.ask()["choices"][0]["text"] for _ in range(4)} == {"a"}


def test_a_stream_goes_on_while_servers_come_and_go(pools):
    pool = pools(PoolLimits(1, 3, in_flight=2, calm_s=0.2))
    found: list = []
    long = threading.Thread(target=lambda: found.append(streams(pool, 1, 1, 120)))  # six seconds
    long.start()
    level = streams(pool, 5, 10, 20)
    assert level.replicas[1] >= 2  # a third comes only where the machine starts it in time
    MODELS.roll(pool.volume, pool.model("b"), 60.0, lambda _: None)
    long.join(60)
    assert not [one.fault for one in (*found[0].streams, *level.streams) if one.fault]
    assert len(found[0].streams[0].pieces_s) == 120


def test_what_a_pool_serves_is_known_where_its_volume_lies_elsewhere(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    write_wanted(before, ServedModel(3, str(before / "2"), str(before / "1"), "/other/model"))
    before.rename(after)
    assert read_wanted(after) == ServedModel(3, str(after / "2"), str(after / "1"), "/other/model")


@pytest.mark.parametrize(("text", "limits"), [("1", (1, 1)), ("3", (3, 3)), ("1..4", (1, 4))])
def test_replicas_are_a_number_or_a_range(text, limits):
    assert limits_of(text) == limits


@pytest.mark.parametrize("text", ["0", "4..1", "1-4", "", "1..", "100..200"])
def test_other_replicas_are_refused(text):
    with pytest.raises(ValueError, match="such as"):
        limits_of(text)
