"""Whatever a protocol holds, it is read or refused with findings; nothing else is ever raised."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cordee.core.errors import DocumentError
from cordee.systems.vetting.protocol.document import load_protocol
from cordee.systems.vetting.protocol.types import type_names

KEYS = ["name", "type", "required", "deadline", "scope", "requirements", "min_bytes", "max_temp", "min_bandwidth", "x"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.sampled_from(["1GB", "5s", "host.memory", "torch", "pair.bandwidth", "", "0x1p3", "20 GB/s", "a:b"])
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)
EVALS = st.fixed_dictionaries(
    {"name": st.just("a") | VALUES, "type": st.sampled_from(type_names()) | VALUES},
    optional=dict.fromkeys(KEYS[2:], VALUES),
)
PROTOCOLS = st.fixed_dictionaries(
    {"name": st.just("p") | VALUES, "evals": st.lists(EVALS | VALUES, max_size=4) | VALUES},
    optional=dict.fromkeys(("scheduler", "pip", "deadline", "required", "confusion", "min_nodes", "history"), VALUES),
)
LISTING = """\
name: mine
deadline: 60s
evals:
- name: a
  type: host.memory
  min_bytes: 1GB
- name: b
  type: pair.bandwidth
  min_ratio: 0.9
  requirements:
  - torch
"""


def outcome(path, text: str) -> None:
    path.write_text(text)
    document, findings = {}, []
    try:
        document = load_protocol(path).resolved()
    except DocumentError as error:
        findings = error.findings
    assert bool(document) != bool(findings)
    assert all(finding.text and (finding.line or 1) >= 1 for finding in findings)
    json.dumps([document, [finding.document() for finding in findings]], allow_nan=False)


@pytest.mark.campaign
@settings(max_examples=300)
@given(PROTOCOLS | VALUES)
def test_any_values(tmp_path_factory, values):
    outcome(tmp_path_factory.getbasetemp() / "any.yaml", yaml.safe_dump(values, allow_unicode=True))


@settings(max_examples=300)
@given(st.integers(0, len(LISTING) - 1), st.integers(0, 12), st.text(max_size=6))
def test_any_change_of_a_good_one(tmp_path_factory, at, length, instead):
    outcome(tmp_path_factory.getbasetemp() / "changed.yaml", LISTING[:at] + instead + LISTING[at + length :])


def test_a_value_that_json_has_not_is_refused(tmp_path):
    outcome(tmp_path / "nan.yaml", "name: x\nevals:\n- {name: a, type: command, command: [true, .nan]}\n")
