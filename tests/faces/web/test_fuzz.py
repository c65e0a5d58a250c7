"""The HTTP interface against its own OpenAPI document: whatever is asked, no answer is a failure or another shape."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cordee.faces.web.app import make_app
from cordee.runs.folder import RunFolder
from support.servers.serving import ServedRuns

KNOWN = {"group": "gpu", "metric": "gpu_power_watts", "name": "loss", "node": "nid000001", "rank": 3}
DOCUMENT = make_app([]).app.openapi()  # type: ignore[attr-defined]
LABELS = [
    f"{method.upper()} {path}"
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
    if not path.endswith("/live")
]
BOUNDED = settings(
    max_examples=14, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("label", LABELS)
def test_whatever_is_asked_is_answered_in_the_shape_of_the_document(
    served: ServedRuns, made_folder: RunFolder, label: str
) -> None:
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as openapi

    checks = [
        not_a_server_error,
        openapi.status_code_conformance,
        openapi.content_type_conformance,
        openapi.response_schema_conformance,
    ]
    found = (operation.ok() for operation in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations())
    (asked,) = (operation for operation in found if operation.label == label)
    values = {**KNOWN, "run": made_folder.id, "runs": made_folder.id}

    @BOUNDED
    @given(case=asked.as_strategy(), known=st.sampled_from(["all", "run", "none"]))
    def ask(case: Any, known: str) -> None:
        for given_values in (case.path_parameters, case.query):
            for name in given_values or {}:
                if name in values and (known == "all" or (known == "run" and name == "run")):
                    given_values[name] = values[name]
        case.call_and_validate(base_url=served.url, checks=checks)

    ask()


def test_every_answer_and_parameter_is_described(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            assert operation["description"], path
            assert {"200", "400", "401", "403", "404", "409", "503"} <= set(operation["responses"]), path
            assert "422" not in operation["responses"]
            for parameter in operation.get("parameters", []):
                known = parameter["in"] == "header" or parameter["name"] in ("run", "node", "rank")
                assert known or parameter.get("description"), f"{path} {parameter['name']}"
