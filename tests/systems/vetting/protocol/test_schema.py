"""The published schema and the list of checks say what the loader does."""

from __future__ import annotations

import json

import jsonschema
import pytest

from cordee.core.documents.yaml_lines import read_yaml
from cordee.core.errors import DocumentError
from cordee.systems.vetting.node.checks import CHECKS, load_check
from cordee.systems.vetting.protocol.document import BUILT_IN, load_protocol, protocol_path
from cordee.systems.vetting.protocol.schema import check_list, check_list_text, protocol_schema

SCHEMA = protocol_schema()


def allows(values) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(values)


def test_the_schema_is_one_and_is_plain_json():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA, allow_nan=False)) == SCHEMA


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_protocol_is_valid_by_both(name):
    assert load_protocol(name).name == name
    assert allows(read_yaml(protocol_path(name)).values)


@pytest.mark.parametrize(
    "evals",
    [
        "[]",
        "[3]",
        "[{name: a}]",
        "[{type: host.load}]",
        "[{name: a, type: nothing}]",
        "[{name: a, type: host.memory, min_byte: 1}]",
        "[{name: a, type: host.memory, min_bytes: [1]}]",
        "[{name: a, type: host.memory, required: 1}]",
        "[{name: a, type: host.memory, scope: rack}]",
        "[{name: a, type: host.commands}]",
        "[{name: a, type: host.load, requirements: [3]}]",
        "[{name: a, type: pair.bandwidth, backend: mpi}]",
        "[{name: a, type: pair.bandwidth, min_ratio: 2}]",
    ],
)
def test_what_the_loader_refuses_the_schema_does_not_allow(evals, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(f"name: x\nevals: {evals}\n")
    with pytest.raises(DocumentError):
        load_protocol(path)
    assert not allows(read_yaml(path).values)


def test_a_class_of_other_people_may_have_keys_that_the_schema_does_not_know():
    assert allows({"name": "x", "evals": [{"name": "a", "type": "my.checks:Disk", "whatever": 3}]})


def test_every_check_is_listed_with_what_it_takes():
    found = {check["type"]: check for check in check_list()["checks"]}
    assert set(CHECKS) | {"pair.bandwidth"} == set(found)
    for name, check in found.items():
        assert check["title"].endswith("?"), name
        assert all(one["what"] for one in check["parameters"]), name
        if name != "pair.bandwidth":
            assert [one["name"] for one in check["parameters"]] == [one.name for one in load_check(name).parameters]
    assert json.loads(json.dumps(check_list(), allow_nan=False))


def test_the_text_of_the_list_names_every_type_and_parameter():
    text, found = check_list_text(), check_list()
    for check in found["checks"]:
        assert check["type"] in text
        assert all(f"{one['name']} " in text for one in check["parameters"])
    assert all(f"{one['type']}  becomes" in text for one in found["vetnode"])
    assert all(f"    {name}  " in text for name in BUILT_IN)
