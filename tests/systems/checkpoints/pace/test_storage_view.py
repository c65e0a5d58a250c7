"""What checkpoints cost: a known dent is found and measured, one that is not there is not; what is unknown is said to be."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

from cordee.systems.checkpoints.pace import storage_view

T0 = 1_700_000_000.0


@pytest.mark.parametrize("every", [1, 5, 10])
def test_a_known_dent_is_found_and_its_seconds_measured(training, every):
    training.train(200, save_s=5.0, save_every=40, every=every)
    view = storage_view(training.read())
    assert [save.step for save in view.saves] == [39, 79, 119, 159, 199]
    assert [dent.visible for dent in view.dents[:4]] == [True] * 4
    for dent in view.dents[:4]:
        assert dent.lost_s == pytest.approx(5.0, abs=0.7)
    assert view.dents[4].reason == "no steps that count were logged around it"
    assert view.lost_s == pytest.approx(20.0, abs=2.0)
    save = view.saves[0]
    assert (save.bytes, save.ranks, save.blocking, save.source) == (4e9, 4, True, "told")
    assert save.seconds == pytest.approx(5.0)
    assert "4 of the 4 that can be judged dented the throughput" in view.text


def test_the_share_is_what_was_lost_of_the_throughput_meanwhile(training):
    training.train(100, save_s=3.0, save_every=50, noise=0.0)
    dent = storage_view(training.read()).dents[0]
    assert dent.share == pytest.approx(3 / 4, abs=0.01)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2, 0.5])
def test_a_save_that_costs_nothing_has_no_dent_however_steps_vary(training, noise):
    training.train(400, save_s=0.0, save_every=20, noise=noise)
    view = storage_view(training.read())
    assert sum(dent.lost_s is not None for dent in view.dents) == 20
    assert not any(dent.visible for dent in view.dents)
    assert view.lost_s == 0
    assert "no dent in the throughput stands out" in view.text


def test_a_save_beside_the_training_is_no_dent(training):
    training.train(100, noise=0.01, told=False)
    for step in (39, 79):
        training.log(0, T0 + step + 5, step, cordee__checkpoint_seconds=6.0, cordee__checkpoint_blocking=0.0)
    view = storage_view(training.read())
    assert [(dent.visible, save.blocking) for dent, save in zip(view.dents, view.saves, strict=True)] == [
        (False, False)
    ] * 2
    assert view.saves[0].bytes is None


def test_clocks_of_nodes_that_differ_move_no_save(training):
    training.train(100, save_s=5.0, save_every=40, skew_s=0.4)
    view = storage_view(training.read())
    assert view.saves[0].seconds == pytest.approx(5.0)
    assert view.dents[0].lost_s == pytest.approx(5.0, abs=0.7)


def test_too_few_steps_around_a_save_are_said_to_be_too_few(training):
    training.train(6, save_s=5.0, save_every=3)
    view = storage_view(training.read())
    assert "undisturbed steps" in view.dents[0].reason
    assert "is not known" in view.text
    assert view.document()["summary"]["measured"] == 0


def test_a_restart_is_no_dent_and_attempts_are_not_compared(training):
    training.begin(1, T0 - 1)
    training.train(50, save_s=5.0, save_every=15)
    training.begin(2, T0 + 499)
    training.train(50, save_s=5.0, save_every=15, first=30, attempt=2, start=T0 + 500, step_s=3.0)
    view = storage_view(training.read())
    assert [(save.step, save.attempt) for save in view.saves] == [(14, 1), (29, 1), (44, 1), (44, 2), (59, 2), (74, 2)]
    assert [dent.lost_s for dent in view.dents if dent.visible] == pytest.approx([5.0] * 4, abs=1.0)
    assert [dent.reason for dent in view.dents[1:3]] == ["no steps that count were logged around it"] * 2
    times, values = view.pace
    waiting = (times > T0 + 60) & (times < T0 + 480)
    assert np.isnan(values[waiting]).all()
    assert np.nanmedian(values[times > T0 + 510]) == pytest.approx(1 / 3, rel=0.1)


def test_a_step_that_was_saved_again_by_a_restart_is_two_saves(training):
    training.train(40, save_s=2.0, save_every=30)
    training.train(40, save_s=2.0, save_every=30, attempt=2, start=T0 + 500)
    assert [(save.step, save.attempt) for save in storage_view(training.read()).saves] == [(29, 1), (29, 2)]


def burst(training, ends, seconds=200, peak=3e8):
    rates = np.full((seconds, 4), 1e3)
    for end in ends:
        rates[int(end - T0) - 4 : int(end - T0) + 1, 0] = peak
    training.sample("rank", {"io_write_bytes_per_second": rates}, [[0, 1], [2, 3]])


def test_a_script_that_saves_by_itself_is_judged_by_its_burst_of_writes(training):
    ends = training.train(150, save_s=5.0, save_every=50, told=False)
    burst(training, ends[:2])
    for step, end in zip((49, 99), ends, strict=False):
        training.see(step, end + 1.5)
    view = storage_view(training.read())
    assert [(save.source, save.step, save.blocking) for save in view.saves] == [
        ("written", 49, None),
        ("written", 99, None),
    ]
    assert view.saves[0].bytes == pytest.approx(1.5e9, rel=0.25)
    assert all(dent.visible and dent.lost_s == pytest.approx(5.0, abs=1.0) for dent in view.dents)
    assert "from write rates" in view.document()["checkpoints"][0]["text"]


def test_without_a_burst_nothing_is_made_up(training):
    training.train(150, told=False)
    burst(training, [])
    training.see(49, T0 + 51)
    view = storage_view(training.read())
    assert view.saves[0].begin is None
    assert view.dents[0].reason == "when it was written is not known"
    assert [lack["what"] for lack in view.missing] == ["when checkpoints were written"]


def test_rates_are_of_the_whole_job_and_a_node_that_misses_a_sample_makes_no_dip(training):
    training.train(20)
    written = np.full((20, 2), 100.0)
    written[5, 1] = np.nan
    pressure = np.full((20, 2), 0.25)
    rates = {"storage_write_bytes_per_second": written, "pressure_io_ratio": pressure}
    training.sample("node", rates, [["local-0"], ["local-1"]])
    found = {rate.name: rate for rate in storage_view(training.read()).rates}
    assert found["storage_write_bytes_per_second"].values.tolist() == [200.0] * 20
    assert found["pressure_io_ratio"].values.tolist() == [0.25] * 20
    assert found["storage_write_bytes_per_second"].devices == 2


def test_a_run_of_which_nothing_is_known_says_what_is_missing_and_how_to_give_it(training):
    training.lack("local-0", "this node mounts no Lustre and no NFS")
    view = storage_view(training.read())
    assert [lack["what"] for lack in view.missing] == ["rates of shared file systems", "checkpoints"]
    assert "mounts no Lustre" in view.missing[0]["why"]
    assert all(lack["next"] for lack in view.missing)
    document = view.document()
    json.dumps(document, allow_nan=False)
    assert document["start"] is None
    assert document["summary"]["text"] == "No checkpoint was seen."


def test_the_document_is_json_whatever_ranks_log(training):
    training.train(60, save_s=2.0, save_every=30, values=("loss", "tokens_per_s"))
    training.log(0, T0 + 65.5, 60, tokens_per_s=math.nan)
    training.log(0, math.inf, 62, tokens_per_s=1.0)
    training.log(0, math.inf, 71, cordee__checkpoint_seconds=-1.0)
    document = json.loads(json.dumps(storage_view(training.read()).document(), allow_nan=False))
    assert [save["step"] for save in document["checkpoints"]] == [29, 59]
    assert document["checkpoints"][0]["visible"] is True
    assert document["summary"]["share"] == pytest.approx(4.5 / 65.5, rel=0.2)
    assert len(document["pace"]["times"]) <= 601


def test_the_throughput_of_the_ranks_is_shown_over_all_of_the_time_so_that_saves_dent_it(training):
    training.train(100, save_s=5.0, save_every=40, noise=0.01, values=("loss", "tokens_per_s"))
    document = storage_view(training.read(), points=200).document()
    curve = document["throughput"]
    assert curve["name"] == "tokens_per_s, from progress"
    assert "the median of tokens_per_s" in curve["how"]
    values = np.array(curve["values"], dtype=float)
    assert np.nanmedian(values) == pytest.approx(2.0, rel=0.1)
    assert np.nanmin(values) < 0.6


def test_steps_that_are_not_alike_have_no_throughput_but_a_pace(training):
    training.train(100, save_s=5.0, save_every=40, noise=0.5, values=("tokens_per_s",))
    document = storage_view(training.read()).document()
    assert document["throughput"] is None
    assert document["pace"]["values"]


def test_a_window_of_time_bounds_the_curves_and_not_the_checkpoints(training):
    training.train(200, save_s=5.0, save_every=40)
    view = storage_view(training.read(), T0 + 50, T0 + 60, points=5)
    assert view.pace[0].tolist() == [T0 + 50, T0 + 52, T0 + 54, T0 + 56, T0 + 58]
    assert len(view.saves) == 5


def test_a_recording_has_no_journal_and_is_judged_by_what_its_processes_tell(training):
    training.train(100, save_s=5.0, save_every=40)
    run = training.read()
    (run.folder.root / "recorders").mkdir()
    shutil.rmtree(run.folder.journal)
    assert storage_view(run).lost_s == pytest.approx(10.0, abs=1.5)
