"""Places on their way from a rank's channel, or from its command, into the facts of the run."""

from __future__ import annotations

from cordee.client.layout import layout_fact
from cordee.control.agent.ranks.layout import places_of_command
from cordee.control.world import AttemptWorld
from cordee.telemetry.node.blocklog import FACTS, decode_json, iter_records
from cordee.telemetry.node.places import place_record
from cordee.wire.facts import LayoutFact, SourceFact

PLACE = layout_fact({"dp": (3, 8), "tp": (1, None)}, "mesh")


def devices(record):
    ((kind, body),) = iter_records(record)
    assert kind == FACTS
    return decode_json(body)["devices"]


def world(ranks_per_node=4, nodes=2):
    names = tuple(f"n{at}" for at in range(nodes))
    return AttemptWorld(2, names, names, ranks_per_node, "n1", 1, "n0", 1, 2)


def test_a_place_becomes_facts_of_the_rank_and_other_facts_do_not():
    record = place_record("n1", 7, 2, [(10.0, SourceFact("loss", "wandb")), (11.0, PLACE)])
    assert devices(record) == {
        "7": {
            "place": {"dp": 3, "tp": 1},
            "sizes": {"dp": 8},
            "place_attempt": 2,
            "place_source": "mesh",
            "place_refused": "",
        }
    }


def test_without_places_there_is_no_record():
    assert place_record("n1", 7, 2, [(10.0, SourceFact("loss", "wandb"))]) == b""


def test_the_last_place_counts():
    record = place_record("n1", 7, 2, [(10.0, PLACE), (11.0, LayoutFact({"pp": 2}))])
    assert (devices(record)["7"]["place"], devices(record)["7"]["sizes"]) == ({"pp": 2}, {})


def test_a_refused_call_is_a_fact_too():
    record = place_record("n1", 7, 2, [(10.0, LayoutFact(refused="it was not understood"))])
    assert (devices(record)["7"]["place"], devices(record)["7"]["place_refused"]) == ({}, "it was not understood")


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
