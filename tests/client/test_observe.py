"""`cordee.observe`: what it tells of real ranks, and that it changes nothing of their training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cordee.client.device_steps import BACKWARD_ENDS, FORWARD, OPTIMIZER, STEP_ENDS, DeviceSteps
from cordee.wire.messages import RankDigest
from cordee.wire.ports import pick_ports
from support.runs.watched_ranks import WatchedRanks, make_node_zip, watching

SCRIPT = Path(__file__).with_name("observed_train.py")
OBSERVED, NOT_OBSERVED = (0, 1), (2, 3)


class Seen(NamedTuple):
    losses: dict[int, dict[str, list[float]]]
    digests: dict[int, RankDigest]


@pytest.fixture(scope="module")
def seen(real: None, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("observed")
    found: list[Seen] = []

    async def during(ranks: WatchedRanks) -> None:
        digests: dict[int, RankDigest] = {}
        for world, port in zip((OBSERVED, NOT_OBSERVED), pick_ports("127.0.0.1", 2), strict=True):
            for rank in world:
                how = "with" if world is OBSERVED else "without"
                about = {"RANK": str(rank % 2), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
                ranks.start(rank, str(SCRIPT), how, **about)

        windows = []

        def all_told() -> bool:
            told = ranks.companion.spent().digests or ()
            if told and len(ranks.printed) == 4:
                windows.append(told)
                if len(windows) > 1:  # one that began when all trained already
                    digests.update({digest.rank: digest for digest in told})
            return len(digests) == 4

        await ranks.until(all_told, 180.0)
        found.append(Seen({rank: json.loads(ranks.printed[f"rank-{rank}"]) for rank in range(4)}, digests))

    watching(folder, make_node_zip(folder), during)
    return found[0]


@pytest.mark.parametrize("kind", ["plain", "fsdp", "ddp"])
def test_losses_are_the_same_with_it_and_without(seen: Seen, kind: str):
    for rank in (0, 1):
        losses = seen.losses[rank][kind]
        assert losses == seen.losses[rank + 2][kind]
        assert losses[-1] < losses[0]


def test_time_between_steps_that_nothing_else_tells_is_data_where_it_is_called(seen: Seen):
    for rank in OBSERVED:
        digest = seen.digests[rank]
        assert digest.data.seconds > digest.steps * 0.025
    for rank in NOT_OBSERVED:
        assert seen.digests[rank].data.seconds < seen.digests[rank - 2].data.seconds / 2


def test_all_kinds_and_what_is_not_seen_are_no_more_than_the_window(seen: Seen):
    for digest in seen.digests.values():
        kinds = (digest.compute, digest.data, digest.communication, digest.saving)
        assert sum(kind.seconds for kind in kinds) + digest.unseen_s <= digest.window_s + 0.01
    assert any(digest.compute.seconds > 0 for digest in seen.digests.values())


WRONG = """
import os, sys
os.environ["CORDEE_PULSE"] = "/nowhere"
import cordee
for given in (None, 5, "model", [], object()):
    cordee.observe(given)
"""


def test_what_is_no_module_is_told_once_and_raises_nothing():
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, check=True)
    assert "accepted is a torch.nn.Module" in done.stderr


class MadeEvents:
    """A device's clock: events lie where they are put, and are there once the device has come so far."""

    def __init__(self) -> None:
        self.now_ms = self.done_ms = 0.0

    def __call__(self) -> MadeEvent:
        return MadeEvent(self, self.now_ms)


class MadeEvent:
    def __init__(self, clock: MadeEvents, at_ms: float) -> None:
        self.clock, self.at_ms = clock, at_ms

    def query(self) -> bool:
        return self.clock.done_ms >= self.at_ms

    def elapsed_time(self, other: MadeEvent) -> float:
        assert self.query(), "nobody asks for what is not there yet"
        assert other.query(), "nobody asks for what is not there yet"
        return other.at_ms - self.at_ms


def passed(places: list[tuple[float, int]], done_ms: float = 1e9) -> DeviceSteps:
    clock = MadeEvents()
    steps = DeviceSteps(clock)
    clock.done_ms = done_ms
    for clock.now_ms, place in places:
        steps.passes(place)
    return steps


STEP = [(0.0, FORWARD), (60.0, BACKWARD_ENDS), (80.0, OPTIMIZER), (85.0, STEP_ENDS), (100.0, FORWARD)]


def test_a_device_tells_what_it_was_at_from_forward_pass_to_forward_pass():
    steps = passed(STEP)
    assert steps.taken() == pytest.approx((0.65, 0.15, 0.2, 0.1))
    assert steps.taken() is None


def test_nothing_is_asked_of_a_device_that_is_behind():
    assert passed(STEP, done_ms=99.0).taken() is None


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([(-30.0, FORWARD), (-10.0, BACKWARD_ENDS), *STEP], (0.65, 0.15, 0.2, 0.1)),
        ([(-30.0, OPTIMIZER), (-10.0, STEP_ENDS), *STEP], (0.65, 0.15, 0.2, 0.1)),
        ([*STEP[:2], (70.0, BACKWARD_ENDS), *STEP[2:]], (0.75, 0.15, 0.1, 0.1)),
        ([*STEP, (110.0, BACKWARD_ENDS), (120.0, OPTIMIZER)], (0.65, 0.15, 0.2, 0.1)),
        (STEP[:4], None),
    ],
    ids=["a micro-batch before", "the end of a step before", "two backward passes", "the next step", "no next step"],
)
def test_what_comes_out_of_turn_begins_a_step_anew(places, expected):
    taken = passed(places).taken()
    assert taken == (pytest.approx(expected) if expected else None)
