"""What a node measures on its way: schemas again for a new supervisor, nothing dropped without being counted."""

from __future__ import annotations

import os

from cordee.control.agent.companions import TimeSpent
from cordee.control.agent.machine import NodeTasks
from cordee.control.agent.ranks import channels
from cordee.control.agent.ranks.data_positions import DataPositions
from cordee.control.agent.telemetry.node_telemetry import NodeTelemetry
from cordee.machine import node_folder as memory
from cordee.runs.plan import RunSampling
from cordee.telemetry.node.blocklog import (
    EVENTS,
    FACTS,
    GRID,
    SCHEMA,
    decode_json,
    encode_facts,
    encode_grid,
    encode_schema,
    iter_records,
)
from cordee.wire.channel import ChannelWriter
from cordee.wire.connection import MAX_FRAME_BYTES
from cordee.wire.messages import KindTimes, RankDigest, RankStand, SlowLink

SAMPLING = RunSampling(1.0)
METRICS = [{"name": "gpu_sm_ratio", "unit": "ratio", "source": "x"}]


class NoChannels:
    """Ranks that log nothing."""

    total = None
    data = DataPositions()
    capped_values: tuple = ()
    unread_bytes = 0
    found: tuple = ()
    places: tuple = ()

    def read(self):
        return b"", {}, {}

    def acknowledge(self, cursors):
        """Nothing was read."""


class Supervisor:
    """Keeps what it is sent; nothing is acknowledged unless the test does."""

    def __init__(self):
        self.messages = []

    def send(self, message, body):
        self.messages.append((message, body))

    def kinds(self):
        return [kind for _, body in self.messages for kind, _ in iter_records(body)]


def new_telemetry(channels, pids=dict):
    return NodeTelemetry("n", channels, pids, SAMPLING, NodeTasks().samplers("n", pids, SAMPLING, 1))


def of_gpus(moment):
    schema, record = encode_schema("n", "gpu", 1.0, ["GPU-a"], METRICS)
    return record, encode_grid(schema, moment, [0.5]), encode_facts("n", "gpu", moment, {"GPU-a": {"index": 0}}, {})


def test_records_of_another_process_travel_with_the_nodes_own_and_their_schema_is_told_again():
    telemetry, supervisor = new_telemetry(NoChannels(), lambda: {0: os.getpid()}), Supervisor()
    telemetry.resend(supervisor.send)
    telemetry.sample(1)
    telemetry.add(b"".join(of_gpus(1.0)))
    telemetry.send(supervisor.send)
    assert supervisor.kinds().count(SCHEMA) == 3
    assert supervisor.kinds().count(GRID) == 3
    assert supervisor.kinds().count(FACTS) == 3
    assert EVENTS not in supervisor.kinds()
    telemetry.acknowledge(0)
    another = Supervisor()
    telemetry.resend(another.send)
    assert another.kinds() == [SCHEMA] * 3


def test_while_nobody_acknowledges_samples_are_dropped_and_counted_and_facts_kept():
    telemetry, supervisor = new_telemetry(NoChannels()), Supervisor()
    telemetry.resend(supervisor.send)
    for moment in range(120):
        telemetry.add(b"".join(of_gpus(float(moment))))
        telemetry.send(supervisor.send)
    supervisor.messages.clear()
    telemetry.add(b"".join(of_gpus(121.0)))
    telemetry.sample(1)
    telemetry.send(supervisor.send)
    assert supervisor.messages[-1][0].lost_samples == 2
    assert supervisor.kinds() == [SCHEMA, FACTS]


def test_full_rings_of_many_ranks_arrive_whole_in_messages_that_the_wire_takes(tmp_path, monkeypatch):
    for module in (memory, channels):
        monkeypatch.setattr(module, "memory_places", lambda: [tmp_path])
    node = channels.RankChannels("run", "n")
    values = {f"{chr(1) * 24}{number}": number / 7 for number in range(20)}  # worth more in JSON than in the ring
    written = 0
    for rank in range(9):
        writer = ChannelWriter(node.create(1, rank))
        while writer.write(written, values):
            written += 1
        writer.close()
    telemetry, supervisor = new_telemetry(node), Supervisor()
    telemetry.resend(supervisor.send)
    telemetry.send(supervisor.send)
    assert 0 < len(supervisor.messages) < 30  # more than the wire may hold is not sent before something is stored
    assert supervisor.messages[-1][0].unread_bytes > 0
    while telemetry.acknowledge(supervisor.messages[-1][0].sequence):
        telemetry.send(supervisor.send)
    assert supervisor.messages[-1][0].unread_bytes == 0
    assert max(len(body) for _, body in supervisor.messages) < MAX_FRAME_BYTES - (1 << 20)
    stored = [
        decode_json(body) for _, whole in supervisor.messages for kind, body in iter_records(whole) if kind == EVENTS
    ]
    assert sum(len(record["events"]) for record in stored) == written
    assert sorted(record["dropped"] for record in stored)[-9:] == [1] * 9  # each ring was filled until it refused
    node.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_ranks_did_is_told_once_and_not_again_with_what_was_kept():
    digest = RankDigest(3, 10.0, 3, *[KindTimes(2.0, 20, 0.5, 1.0)] * 4, 0.0, 2.0, 0, 0.0)
    windows = [TimeSpent((digest,), (SlowLink("10.0.0.2", 100, 3),))]
    about = NodeTasks().samplers("n", dict, SAMPLING, 1)
    spent = lambda: windows.pop() if windows else TimeSpent(())  # noqa: E731
    telemetry = NodeTelemetry("n", NoChannels(), dict, SAMPLING, about, spent=spent)
    supervisor, another = Supervisor(), Supervisor()
    telemetry.send(supervisor.send)
    assert windows, "nothing is taken while nobody is there"
    telemetry.resend(supervisor.send)
    telemetry.add(b"".join(of_gpus(1.0)))
    telemetry.send(supervisor.send)
    telemetry.send(supervisor.send)
    told = [(message.digests, message.links) for message, _ in supervisor.messages[-2:]]
    assert told == [((digest,), (SlowLink("10.0.0.2", 100, 3),)), ((), ())]
    telemetry.resend(another.send)
    assert [message.digests for message, _ in another.messages] == [None, None]


def test_ranks_that_stand_are_told_as_they_are_at_the_moment_and_not_again_with_what_was_kept():
    standing = [RankStand(3, 8.0, 6.0, 1.0, True, "")]
    about = NodeTasks().samplers("n", dict, SAMPLING, 1)
    telemetry = NodeTelemetry("n", NoChannels(), dict, SAMPLING, about, stands=lambda: tuple(standing))
    supervisor, another = Supervisor(), Supervisor()
    telemetry.resend(supervisor.send)
    telemetry.add(b"".join(of_gpus(1.0)))
    telemetry.send(supervisor.send)
    assert supervisor.messages[-1][0].stands == tuple(standing)
    standing.clear()
    telemetry.resend(another.send)
    telemetry.send(another.send)
    assert [message.stands for message, _ in another.messages] == [None, None, ()]
