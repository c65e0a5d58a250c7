"""The places of ranks as a reader of the run sees them, and what is found wrong with them."""

from __future__ import annotations

import itertools

import pytest

from cordee.client.layout import layout_fact
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_facts
from cordee.telemetry.node.places import place_record
from cordee.telemetry.store.placement import placement, placement_findings, sizes_of
from cordee.telemetry.store.reader import open_run
from cordee.telemetry.store.seal import seal


def say(known, node, rank, attempt, **dimensions):
    pairs = {name: value if isinstance(value, tuple) else (value, None) for name, value in dimensions.items()}
    record = place_record(node, rank, attempt, [(1_700_000_000.0, layout_fact(pairs, "call"))])
    writer = BlockLogWriter(known.telemetry, 1)
    writer.append(record)
    assert writer.close()


def made(sizes, told=True):
    """Return the places of a whole world, the last dimension fastest."""
    indices = itertools.product(*(range(size) for size in sizes.values()))
    return {
        rank: {
            "place": dict(zip(sizes, index, strict=True)),
            "sizes": dict(sizes) if told else {},
            "source": "call",
            "attempt": 1,
            "node": "n",
            "refused": "",
        }
        for rank, index in enumerate(indices)
    }


def rules(places, world_size):
    return [finding.rule for finding in placement_findings(places, world_size)]


@pytest.mark.parametrize("sealed", [False, True])
def test_only_the_newest_attempt_counts_also_when_a_rank_has_moved(known, sealed):
    known.write(stop=3)
    for rank in range(3):
        say(known, f"local-{rank // 2}", rank, 1, dp=(rank, 3))
    say(known, "local-1", 0, 2, dp=(1, 2))
    say(known, "local-0", 1, 2, dp=(0, 2))
    run = open_run(known.folder.root)
    if sealed:
        seal(known.folder.root, final=True)
    found = placement(run)
    assert {rank: (told["node"], told["place"]) for rank, told in found.items()} == {
        0: ("local-1", {"dp": 1}),
        1: ("local-0", {"dp": 0}),
    }


def test_a_run_that_told_nothing_has_no_places_and_no_findings(known):
    known.write(stop=3)
    assert placement(open_run(known.folder.root)) == {}
    assert placement_findings({}, 4) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"place": {"dp": "x"}, "sizes": {}, "place_attempt": 1},
        {"place": {"dp": 0}, "sizes": {"dp": None}, "place_attempt": 1},
        {"place": [], "sizes": {}, "place_attempt": 1},
        {"place": {"dp": 0}, "sizes": {}},
        {"place": {"dp": 0}, "sizes": {}, "place_attempt": "1"},
    ],
)
def test_facts_that_are_no_place_are_passed_over(known, facts):
    known.write(stop=3)
    writer = BlockLogWriter(known.telemetry, 1)
    writer.append(encode_facts("local-0", "rank", 1.0, {"0": facts, "x": {"place": {}}}, {}))
    assert writer.close()
    assert placement(open_run(known.folder.root)) == {}


@pytest.mark.parametrize("pair", [(0, 0), (0, -2), (-1, 4), (5, 4)])
def test_sizes_that_make_no_sense_are_findings_and_no_errors(pair):
    places = made({"dp": 4})
    places[0].update(place={"dp": pair[0]}, sizes={"dp": pair[1]})
    assert "place-beyond" in rules(places, 4)


def test_whole_worlds_are_found_right_with_and_without_sizes_and_with_experts_beside():
    assert rules(made({"pp": 2, "dp": 3, "tp": 4}), 24) == []
    assert rules(made({"pp": 2, "dp": 3, "tp": 4}, told=False), 24) == []
    places = made({"dp": 4, "tp": 2})
    for rank, told in places.items():
        told["place"]["ep"], told["sizes"]["ep"] = rank % 4, 4
    assert rules(places, 8) == []
    assert rules(made({"dp": 2, "ep": 4}), 8) == []
    assert sizes_of(places) == {"dp": 4, "tp": 2, "ep": 4}


def test_two_ranks_at_one_place_are_named():
    places = made({"dp": 2, "tp": 2})
    places[3]["place"]["tp"] = 0
    (finding,) = placement_findings(places, 4)
    assert finding.rule == "place-twice"
    assert "ranks 2, 3" in finding.text
    assert "dp 1 tp 0" in finding.text


def test_an_index_beyond_its_size_is_named():
    places = made({"dp": 4})
    places[2]["place"]["dp"] = 4
    (finding,) = placement_findings(places, 4)
    assert (finding.rule, finding.given, finding.allowed) == ("place-beyond", 4, "0 to 3")


def test_sizes_that_do_not_make_the_world_are_told_from_a_dimension_left_out():
    (finding,) = placement_findings(made({"dp": 3, "tp": 2}), 8)[:1]
    assert (finding.rule, finding.severity) == ("place-world", "warn")
    left_out = [{**told, "place": {"tp": rank % 2}, "sizes": {"tp": 2}} for rank, told in made({"dp": 8}).items()]
    (finding,) = placement_findings(dict(enumerate(left_out)), 8)
    assert (finding.rule, finding.severity) == ("place-world", "info")
    assert "not told" in finding.text


def test_ranks_that_disagree_and_ranks_that_are_silent_are_named():
    places = made({"dp": 4})
    places[3]["sizes"]["dp"] = 5
    assert rules(places, 4) == ["place-disagreement"]
    del places[3]
    assert rules(places, 4) == ["place-missing"]


def test_a_refused_call_is_a_finding_with_its_ranks():
    places = made({"dp": 4})
    places[1].update(place={}, sizes={}, refused="it was a word")
    findings = placement_findings(places, 4)
    assert [finding.rule for finding in findings] == ["place-refused", "place-missing"]
    assert "rank 1" in findings[0].text
