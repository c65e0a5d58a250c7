"""What ranks waited for data, and why: made runs whose numbers are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cordee.systems.data.loading import loading_view
from cordee.systems.data.loading.view import LoadingView
from support.made.loading import T0, MadeLoading

# Of one rank in a second: ten batches of 32 samples of 50 KB, a quarter of the time waited for.
CALM = {"wait_seconds": 0.01, "busy_seconds": 0.5, "batches": 10, "samples": 320, "bytes": 16e6, "requests": 320}
WAITING = {**CALM, "wait_seconds": 0.25}


def _only(view: LoadingView, rule: str) -> str:
    (found,) = [finding for finding in view.findings if finding.rule == rule]
    return f"{found.text} | {found.next}"


def test_wait_rates_and_requests_are_those_that_were_told(loading: MadeLoading) -> None:
    for rank in range(4):
        loading.load(rank, each_s=WAITING, requests={65536: 320}, states={"epoch": 1, "position": 6400})
    (load,) = loading_view(loading.read()).loads
    assert load.wait_share == pytest.approx(0.25)
    assert load.wait_per_step_s == pytest.approx(0.025)
    assert load.step_s == pytest.approx(0.1)
    assert load.samples_per_s == pytest.approx(4 * 320)
    assert load.bytes_per_s == pytest.approx(64e6)
    assert load.ranks[0].reading_bytes_per_s == pytest.approx(32e6)
    assert (load.requests, load.median_request_bytes) == ([(65536, 4 * 20 * 320)], 65536)
    assert (load.epoch, load.position, load.totals["samples"]) == (1, 6400, 4 * 20 * 320)


def test_a_restart_adds_to_the_totals_and_is_a_gap_in_the_curve(loading: MadeLoading) -> None:
    loading.load(0, 10, each_s=CALM)
    loading.begin(2, T0 + 30)
    loading.load(0, 10, each_s=WAITING, attempt=2, start=T0 + 30)
    view = loading_view(loading.read())
    (load,), (curve,) = view.loads, view.curves
    assert load.totals["samples"] == 2 * 10 * 320
    assert load.ranks[0].span_s == 20
    assert load.wait_share == pytest.approx((0.1 + 2.5) / 20)
    shares = dict(zip((curve.times - T0).tolist(), curve.wait_share.tolist(), strict=True))
    assert shares[5] == pytest.approx(0.01)
    assert shares[35] == pytest.approx(0.25)
    assert np.isnan([shares[second] for second in range(11, 30)]).all()


def test_the_sum_over_ranks_is_not_thinned_where_bins_are_covered_in_part(loading: MadeLoading) -> None:
    for rank in range(4):
        loading.load(rank, 10, each_s=CALM, start=T0 + 0.5)
    (curve,) = loading_view(loading.read(), T0, T0 + 11).curves
    assert curve.bytes_per_s[0] == pytest.approx(64e6)
    assert curve.samples_per_s[5] == pytest.approx(1280)


def test_sets_are_told_apart_also_when_their_names_hold_slashes(loading: MadeLoading) -> None:
    loading.load(0, each_s=CALM, name="a/b", requests={4096: 1})
    loading.load(0, each_s=WAITING, name="c")
    found = {load.name: load for load in loading_view(loading.read()).loads}
    assert list(found) == ["a/b", "c"]
    assert found["a/b"].requests == [(4096, 20)]
    assert found["c"].requests == []


def test_the_share_of_a_measured_limit_counts_the_hosts_that_read(loading: MadeLoading) -> None:
    for rank in range(4):
        loading.load(rank, each_s=CALM, states={"limit_bytes_per_second": 64e6})
    view = loading_view(loading.read())
    assert view.loads[0].hosts == 2
    assert view.loads[0].share_of_limit == pytest.approx(0.5)
    assert "50 % of the 64 MB/s that cordee data bench measured" in view.texts[0]
    assert not view.missing


def test_without_a_measurement_the_tiers_bandwidth_is_the_limit_of_all(loading: MadeLoading) -> None:
    loading.plan(bandwidth_bytes_per_s=640_000_000)
    for rank in range(4):
        loading.load(rank, each_s=CALM)
    (load,) = loading_view(loading.read()).loads
    assert load.share_of_limit == pytest.approx(0.1)
    assert load.limit is not None
    assert load.limit.source == "profile"


def test_what_a_node_gets_of_the_tier_goes_before_the_whole_tier(loading: MadeLoading) -> None:
    loading.plan(bandwidth_bytes_per_s=640_000_000, node_bandwidth_bytes_per_s=64_000_000)
    for rank in range(4):
        loading.load(rank, each_s=CALM)
    view = loading_view(loading.read())
    assert view.loads[0].share_of_limit == pytest.approx(0.5)
    assert "for a node" in view.texts[0]


def test_a_limit_that_nobody_knows_is_named_and_not_guessed(loading: MadeLoading) -> None:
    loading.plan()
    loading.load(0, each_s=CALM)
    view = loading_view(loading.read())
    assert view.loads[0].share_of_limit is None
    assert [entry["what"] for entry in view.missing] == ["the limit of corpus"]
    assert "`cordee data bench /store/corpus`" in view.texts[0]


def test_loading_that_keeps_up_has_no_findings(loading: MadeLoading) -> None:
    for rank in range(4):
        loading.load(rank, each_s=CALM)
    assert loading_view(loading.read()).findings == []


CAUSES = [
    ("data-limit", {}, {"limit_bytes_per_second": 18e6}, {65536: 320.0}, "the limit is reached, 89 %"),
    ("data-small-files", {"opens": 320}, {}, {65536: 320.0}, "cordee data pack /store/corpus --to FOLDER"),
    ("data-decode", {"busy_seconds": 0.1}, {}, {65536: 320.0}, "decoding and collating"),
    ("data-small-requests", {"busy_seconds": 0.9}, {}, {65536: 320.0}, "requests of at most 64 KiB in the median"),
    ("data-wait", {"busy_seconds": 0.9}, {}, {1 << 24: 1.0}, "storage did not keep up"),
]


@pytest.mark.parametrize(("rule", "more", "states", "requests", "said"), CAUSES, ids=[case[0] for case in CAUSES])
def test_a_wait_is_told_with_its_cause_and_what_to_change(
    loading: MadeLoading,
    rule: str,
    more: dict[str, float],
    states: dict[str, float],
    requests: dict[int, float],
    said: str,
) -> None:
    loading.plan()
    loading.load(0, each_s={**WAITING, **more}, states=states, requests=requests)
    words = _only(loading_view(loading.read()), rule)
    assert "the ranks waited 25 % of the time for data (corpus)" in words
    assert said in words


def test_the_rank_that_all_others_wait_for_is_named(loading: MadeLoading) -> None:
    for rank in range(4):
        loading.load(rank, each_s=WAITING if rank == 3 else CALM)
    view = loading_view(loading.read())
    words = _only(view, "data-slow-rank")
    assert "rank 3 on local-1 waited 25 % of its time" in words
    (slowest,) = [load.slowest for load in view.loads]
    assert slowest is not None
    assert slowest.rank == 3


def test_skipped_samples_are_told(loading: MadeLoading) -> None:
    loading.plan()
    loading.load(0, each_s={**CALM, "skipped": 1})
    assert "20 samples of corpus were skipped" in _only(loading_view(loading.read()), "data-skipped")


def test_what_was_told_once_has_totals_and_no_rates(loading: MadeLoading) -> None:
    loading.load(0, 0, each_s={}, states={"samples": 7, "batches": 1})
    view = loading_view(loading.read())
    (load,) = view.loads
    assert (load.totals["samples"], load.wait_share, load.bytes_per_s) == (7, None, None)
    assert "too short a time" in view.texts[0]
    assert view.findings == []


def test_a_few_seconds_are_no_ground_for_advice(loading: MadeLoading) -> None:
    loading.load(0, 8, each_s=WAITING)
    view = loading_view(loading.read())
    assert view.loads[0].wait_share == pytest.approx(0.25)
    assert view.findings == []


def test_a_run_without_data_says_what_is_missing(loading: MadeLoading) -> None:
    view = loading_view(loading.read())
    assert (view.loads, [entry["what"] for entry in view.missing]) == ([], ["the loading"])
    assert "cordee.dataset" in view.missing[0]["why"]


def test_a_data_set_of_the_job_that_nobody_told_of_is_named(loading: MadeLoading) -> None:
    loading.plan(name="other", place="/store/other")
    loading.load(0, each_s=CALM)
    assert loading_view(loading.read()).missing[0]["what"] == "the loading of other"


def test_a_set_that_is_read_by_its_path_is_known_by_its_place(loading: MadeLoading) -> None:
    loading.plan(name="train")
    loading.load(0, each_s=CALM, name="corpus")
    view = loading_view(loading.read())
    assert view.loads[0].place == "/store/corpus"
    assert [entry["what"] for entry in view.missing] == ["the limit of corpus"]


def test_a_mix_is_known_by_the_names_of_its_sets(loading: MadeLoading) -> None:
    loading.plan(name="web", tier="store", node_bandwidth_bytes_per_s=160_000_000)
    loading.load(0, each_s=CALM, name="web+web")
    view = loading_view(loading.read())
    assert (view.loads[0].kind, view.loads[0].place) == ("mix", None)
    assert view.loads[0].share_of_limit == pytest.approx(0.1)
    assert view.missing == []


def test_the_document_is_json_with_nulls_where_nothing_is_known(loading: MadeLoading) -> None:
    loading.load(0, 5, each_s=CALM)
    loading.load(1, 0, each_s={}, states={"samples": 1})
    document = json.loads(json.dumps(loading_view(loading.read()).document(), allow_nan=False))
    assert document["schema"] == "cordee.loading/1"
    (one,) = document["sets"]
    assert one["by_rank"][1]["wait_share"] is None
    assert len(one["curve"]["times"]) == len(one["curve"]["wait_per_step_s"])
