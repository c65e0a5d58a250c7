"""Places on their way from a rank's channel, or from its command, into the facts of the run."""

from __future__ import annotations

from cordee.client.layout import encoded
from cordee.control.agent.ranks.layout import places_of_command
from cordee.control.world import AttemptWorld
from cordee.telemetry.node.blocklog import FACTS, decode_json, iter_records
from cordee.telemetry.node.places import split_places

PLACE = encoded({"dp": (3, 8), "tp": (1, None)}, "mesh")


def devices(record):
    ((kind, body),) = iter_records(record)
    assert kind == FACTS
    return decode_json(body)["devices"]


def world(ranks_per_node=4, nodes=2):
    names = tuple(f"n{at}" for at in range(nodes))
    return AttemptWorld(2, names, names, ranks_per_node, "n1", 1, "n0", 1, 2)


def test_a_place_becomes_facts_of_the_rank_and_other_events_stay():
    logged = (0, 10.0, 4, {"loss": 1.0})
    kept, record = split_places("n1", 7, 2, [logged, (64, 11.0, None, PLACE), (128, 12.0, None, {"free": 1.0})])
    assert kept == [logged, (128, 12.0, None, {"free": 1.0})]
    assert devices(record) == {
        "7": {
            "place": {"dp": 3, "tp": 1},
            "sizes": {"dp": 8},
            "place_attempt": 2,
            "place_source": "mesh",
            "place_refused": "",
        }
    }


def test_without_places_events_are_passed_on_as_they_are():
    events = [(0, 10.0, 4, {"loss": 1.0}), (64, 11.0, None, {})]
    assert split_places("n1", 7, 2, events) == (events, b"")


def test_the_last_place_counts_and_numbers_that_are_none_are_left_out():
    later = {"cordee/place/dp": float("nan"), "cordee/place/tp": 1e300, "cordee/place/pp": 2.0}
    _, record = split_places("n1", 7, 2, [(0, 10.0, None, PLACE), (64, 11.0, None, later)])
    assert devices(record)["7"]["place"] == {"pp": 2}
    assert devices(record)["7"]["sizes"] == {}


def test_a_refused_call_is_a_fact_too():
    _, record = split_places("n1", 7, 2, [(0, 10.0, None, {"cordee/place/refused": 1.0})])
    assert devices(record)["7"]["place"] == {}
    assert "does not understand" in devices(record)["7"]["place_refused"]


def test_megatrons_command_line_places_the_ranks_of_this_node():
    found = devices(places_of_command(world(), ["python", "p.py", "--tensor-model-parallel-size", "4"], 1.0))
    assert list(found) == ["4", "5", "6", "7"]
    assert found["6"]["place"] == {"tp": 2, "dp": 1, "pp": 0}
    assert found["6"]["sizes"] == {"tp": 4, "dp": 2, "pp": 1}
    assert found["6"]["place_source"] == "settings"


def test_sizes_that_do_not_divide_the_world_are_said_and_no_place_is_made_up():
    found = devices(places_of_command(world(), ["python", "p.py", "--tensor-model-parallel-size", "3"], 1.0))
    assert found["6"]["place"] == {}
    assert "does not divide 8 ranks" in found["6"]["place_refused"]


def test_any_other_command_says_nothing():
    assert places_of_command(world(), ["python", "train.py"], 1.0) == b""
