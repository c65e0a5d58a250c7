"""Facts that a rank tells by its channel, beside numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.wire.channel import ChannelReader, ChannelWriter, create_channel
from cordee.wire.facts import (
    CheckpointFact,
    DataPositionFact,
    FindingFact,
    LayoutFact,
    SourceFact,
    decode_fact,
    encode_fact,
)

FACTS = [
    LayoutFact({"dp": 3, "tp": 1}, {"dp": 8}, "mesh"),
    LayoutFact(refused="it was not understood"),
    SourceFact("loss", "wandb", "tensorboard", "nats", True),
    FindingFact("checkpoint-damaged", "step-2 is not used: Zürich"),
    DataPositionFact("corpus", 2, 100, 39, begin=10, position=49, saved=40, saved_given=30),
    CheckpointFact(7),
]


@pytest.mark.parametrize("fact", FACTS)
def test_a_fact_arrives_as_it_was_told(fact) -> None:
    assert decode_fact(encode_fact(fact)) == fact


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"7",
        b"[]",
        b'{"t": "of a later version"}',
        b'{"t": ["layout"]}',
        b'{"t": "layout", "place": {"dp": "three"}}',
        b'{"t": "layout", "place": {"dp": 1e300}}',
        b'{"t": "source"}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_fact_is_passed_over(text) -> None:
    assert decode_fact(text) is None


def test_facts_stand_between_events_and_are_read_again_until_they_are_stored(tmp_path: Path) -> None:
    create_channel(tmp_path / "channel")
    writer = ChannelWriter(tmp_path / "channel")
    writer.write(1, {"loss": 2.0})
    for fact in FACTS:
        assert writer.tell(fact)
    writer.write(2, {"loss": 1.0})
    for _ in range(2):  # the agent that read them first is killed before they are stored
        reader = ChannelReader(tmp_path / "channel")
        events, cursor = reader.read()
        assert [event[2] for event in events] == [1, 2]
        assert [fact for _, fact in reader.told()] == FACTS
        assert reader.told() == []
    reader.acknowledge(cursor)
    again = ChannelReader(tmp_path / "channel")
    assert (again.read()[0], again.told()) == ([], [])
