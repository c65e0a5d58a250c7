"""Made runs read like real ones, and say that they are made up."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cordee
from cordee.core.errors import UsageError
from cordee.telemetry.store.placement import placement, placement_findings, sizes_of
from cordee.telemetry.store.reader import Run
from support.commands import support
from support.made.journal import step_at
from support.made.runs import MadeRun, follow_run, write_run
from support.recordings.recording import gpu_uuid

MADE = MadeRun(64, 60, started_at=1_790_000_000.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return cordee.open_run(write_run(tmp_path_factory.mktemp("runs"), MADE).root)


def test_a_made_run_has_the_life_of_a_real_one(run: Run) -> None:
    state = run.state
    assert (state.state, state.exit_code, state.restarts, state.world_size) == ("finished", 0, 1, 64)
    assert [phase.name for phase in state.phases].count("train") == 2
    assert state.failures[0]["rank"] == MADE.story.dead_rank
    assert state.checkpoint == f"step-{step_at(MADE.story, 46):09d}"
    assert state.sealed_until
    assert run.plan["steps"][0]["request"]["nodes"] == 16


def test_its_samples_have_the_structure_that_its_story_tells(run: Run) -> None:
    story = MADE.story
    grid = run.grid("gpu", ["gpu_sm_ratio", "gpu_power_watts"])
    assert grid.values.shape == (2, 60, 64)
    order = [grid.devices.index(gpu_uuid(rank // 4, rank % 4)) for rank in range(64)]  # by rank, not by UUID
    busy, watts = grid.values[:, :, order]
    assert np.isnan(busy[:, story.unmeasured]).all()
    silent = slice(story.silent_node * 4, story.silent_node * 4 + 4)
    assert np.isnan(busy[story.silence[0] : story.silence[1], silent]).all()
    assert not np.isnan(busy[: story.silence[0], silent]).any()
    slow = np.nanmean(busy[5:20, story.slow_node * 4 : story.slow_node * 4 + 4])
    assert slow < 0.85 * np.nanmean(busy[5:20, :8])
    device, second = story.nonsense
    assert math.isinf(watts[second, device])
    assert set(grid.sources.values()) == {"synthetic"}


def test_ranks_have_places_whose_sizes_multiply_to_the_world(run: Run) -> None:
    places = placement(run)
    sizes = sizes_of(places)
    assert sizes["tp"] * sizes["pp"] * sizes["dp"] == 64
    assert len({tuple(told["place"][name] for name in ("tp", "dp", "pp")) for told in places.values()}) == 64
    assert placement_findings(places, 64) == []


def test_what_its_ranks_logged_and_printed_can_be_read(run: Run) -> None:
    loss = run.series("loss")
    assert (np.diff(loss.steps) > 0).all()
    assert loss.mean[-1] < loss.mean[0]
    assert len(run.events("cordee/checkpoint_seconds")["cordee/checkpoint_seconds"]) % 64 == 0
    assert any(b"loss" in line.data for line in run.logs.lines(rank=0))


def test_a_live_one_goes_on_in_real_time_and_ends_well(tmp_path: Path) -> None:
    seconds = [cordee.open_run(folder.root).grid("gpu", ["gpu_sm_ratio"]).values.shape[1]
               for folder in follow_run(tmp_path, MadeRun(8, 20, metrics={"gpu": ("gpu_sm_ratio",)}), for_s=2)]  # fmt: skip
    assert seconds == [20, 21, 22, 22]


def test_it_is_made_from_the_command_line(tmp_path: Path) -> None:
    words = ["make-run", str(tmp_path), "--gpus", "16", "--minutes", "0.5", "--json"]
    said = json.loads(CliRunner().invoke(support, words).output)
    assert cordee.open_run(said["folder"]).state.state == "finished"


@pytest.mark.parametrize(("gpus", "seconds"), [(0, 60), (7, 60), (-4, 60), (64, 3)])
def test_what_cannot_be_made_is_refused_in_words(gpus: int, seconds: int) -> None:
    with pytest.raises(UsageError) as caught:
        MadeRun(gpus, seconds)
    assert caught.value.given
    assert caught.value.allowed
