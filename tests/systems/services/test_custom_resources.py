"""Custom resources of Argo CD, Cilium and the Gateway API against the schemas that those projects publish."""

from __future__ import annotations

import copy
import json

import jsonschema
import pytest
from tests.systems.services.crds import EXCERPTS, FILES, rendered

SCHEMAS = {kind: one["schema"] for kind, one in json.loads(EXCERPTS.read_text()).items()}


@pytest.fixture(scope="module")
def objects():
    return rendered()


def test_each_kind_is_rendered_and_passes_its_published_schema(objects):
    assert {one["kind"] for one in objects} == set(FILES) == set(SCHEMAS)
    for one in objects:
        jsonschema.validate(one, SCHEMAS[one["kind"]])
        metadata = one["metadata"]
        assert set(metadata) <= {"name", "namespace", "labels", "annotations"}


@pytest.mark.parametrize(
    ("kind", "where", "value"),
    [
        ("ApplicationSet", ("spec", "template", "spec", "destination", "cluster"), "here"),
        ("ApplicationSet", ("spec", "goTemplate"), "yes"),
        ("ApplicationSet", ("spec", "template", "spec", "project"), None),
        ("AppProject", ("spec", "destinations", 0, "namespaces"), ["a"]),
        ("AppProject", ("spec", "clusterResourceWhitelist", 0, "kind"), None),
        ("CiliumNetworkPolicy", ("spec", "endpointSelector", "podSelector"), {}),
        ("CiliumNetworkPolicy", ("spec", "endpointSelector"), None),
        ("HTTPRoute", ("spec", "rules", 0, "backendRefs", 0, "port"), 99999),
        ("HTTPRoute", ("spec", "hostnames", 0), "not a host"),
        ("HTTPRoute", ("spec", "parentRefs", 0, "name"), None),
    ],
)
def test_the_excerpts_refuse_what_an_api_server_would(objects, kind, where, value):
    one = copy.deepcopy(next(one for one in objects if one["kind"] == kind))
    place = one
    for key in where[:-1]:
        place = place[key]
    if value is None:
        del place[where[-1]]
    else:
        place[where[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(one, SCHEMAS[kind])
