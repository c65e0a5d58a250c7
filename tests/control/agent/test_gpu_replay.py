"""A recording's GPUs played again as a source."""

from __future__ import annotations

import math

import numpy as np
import pytest

import cordee
from cordee.telemetry.node.samplers.gpu import open_gpus
from cordee.telemetry.node.samplers.gpu.replay import ReplaySource
from cordee.testing.samplers import GpuSourceContract
from support.recordings.recording import STARTED_AT, gpu_uuid, made_node, write_recording


@pytest.fixture
def folder(tmp_path):
    """Two nodes with two GPUs each: what a GPU did is 0.1, 0.2, ... and differs from node to node."""
    nodes = []
    for index in range(2):
        sm = np.array([[0.1, 0.5], [0.2, math.nan], [0.3, 0.7]]) + index / 100
        nodes.append(made_node(index, 2, {"gpu_sm_ratio": sm, "gpu_power_watts": 1000 * sm}))
        nodes[-1].missing = {"gpu_dram_ratio": "GPM metric 10: Not Supported"}
    nodes[0].times = STARTED_AT + np.array([0.0, 1.0, 4.0])
    return write_recording(tmp_path / "recording", nodes)


class TestReplay(GpuSourceContract):
    @pytest.fixture
    def opener(self, folder):
        return lambda wanted: ReplaySource(folder, wanted=wanted)


def test_samples_come_as_they_were_with_gaps_and_begin_again(folder):
    source, refused = open_gpus("nid000000", source=f"replay:{folder}")
    assert source is not None
    assert refused == {}
    assert [metric["name"] for metric in source.metrics()] == ["gpu_sm_ratio", "gpu_power_watts"]
    first = [source.sample()[0] for _ in range(5)]
    assert first == pytest.approx([0.1, 0.2, math.nan, math.nan, 0.3], nan_ok=True)
    assert source.sample() == pytest.approx([0.1, 100, 0.5, 500])


def test_reasons_and_facts_are_those_of_the_recording(folder):
    source = ReplaySource(folder, "nid000000")
    assert source.probe() is None
    source.sample()
    assert source.missing["gpu_dram_ratio"] == "GPM metric 10: Not Supported"
    about = source.facts()[gpu_uuid(0, 1)]
    assert about["ranks"] == [1]
    assert about["replayed"] == str(folder)
    assert "no measurement of this job" in source.remarks[0]


@pytest.mark.parametrize(
    ("node", "value"), [("nid000001", 0.11), ("local-0", 0.1), ("local-1", 0.11), ("local-2", 0.1)]
)
def test_nodes_that_replay_together_play_different_nodes(folder, node, value):
    source = ReplaySource(folder, node)
    assert source.probe() is None
    assert source.sample()[0] == pytest.approx(value)


def test_a_sealed_recording_is_played_alike(folder):
    before = ReplaySource(folder, "nid000001")
    assert before.probe() is None
    samples = [before.sample() for _ in range(3)]
    cordee.open_run(folder).seal()
    for part in (folder / "telemetry").glob("blocks-*"):
        part.unlink()
    after = ReplaySource(folder, "nid000001")
    assert after.probe() is None
    for sample in samples:
        assert after.sample() == pytest.approx(sample, rel=1e-6, nan_ok=True)
    assert after.facts() == before.facts()


def test_what_cannot_be_played_is_refused_in_words(tmp_path):
    source, refused = open_gpus("local-0", source=f"replay:{tmp_path / 'none'}")
    assert source is None
    assert "there is no recording at" in refused["replay"]
    empty = write_recording(tmp_path / "empty", [made_node(0, 0)])
    assert "no samples of GPUs" in open_gpus("local-0", source=f"replay:{empty}")[1]["replay"]
