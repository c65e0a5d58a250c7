"""Protocols: what a document becomes, and what is said of a wrong one."""

from __future__ import annotations

import pytest

from cordee.core.errors import DocumentError
from cordee.systems.vetting.protocol.document import load_protocol


@pytest.fixture
def load(tmp_path):
    def call(text):
        (tmp_path / "protocol.yaml").write_text(text)
        return load_protocol(tmp_path / "protocol.yaml")

    return call


@pytest.fixture
def faults(load):
    def call(text):
        with pytest.raises(DocumentError) as caught:
            load(text)
        assert caught.value.exit_code == 2
        for finding in caught.value.findings:
            assert all([finding.file, finding.line, finding.allowed, finding.next]), finding
        return caught.value.findings

    return call


HOST = """\
name: host
deadline: 20s
required: false
min_nodes: 3
confusion: 0.25
evals:
- name: memory
  type: host.memory
  min_bytes: 1GB
  required: true
- name: disk
  type: host.disk
  deadline: 2min
  scope: user
  min_bytes: 4GiB
  paths: {scratch: /scratch, 7: "8"}
- name: pairs
  type: pair.bandwidth
  min_bandwidth: 200Gbit/s
  min_ratio: 0.9
"""


def test_values_become_bytes_and_seconds(load):
    document = load(HOST).resolved()
    assert document["schema"] == "cordee.protocol/1"
    assert document["name"] == "host"
    assert document["deadline_s"] == 20
    assert document["checks"] == [
        {
            "check": "host.memory",
            "name": "memory",
            "parameters": {"min_bytes": 10**9},
            "required": True,
            "deadline_s": 30.0,
        },
        {
            "check": "host.disk",
            "name": "disk",
            "parameters": {"min_bytes": 4 << 30, "min_inodes": 1000, "paths": {"scratch": "/scratch", "7": "8"}},
            "required": False,
            "deadline_s": 120.0,
        },
    ]
    assert document["scopes"] == {"disk": "user"}
    assert document["policy"] == {"confusion_ratio": 0.25, "min_nodes": 3}
    pairs = document["pairs"]
    assert (pairs["name"], pairs["required"], pairs["backend"]) == ("pairs", False, "tcp")
    assert (pairs["ratio"], pairs["min_bandwidth_bytes_per_s"], pairs["rounds"]) == (0.9, 25e9, 2)


def test_the_digest_follows_what_is_asked_and_not_how_it_is_written(load):
    first = load(HOST).resolved()["digest"]
    assert load("# again\n" + HOST.replace("1GB", "1000000000")).resolved()["digest"] == first
    assert load(HOST.replace("1GB", "2GB")).resolved()["digest"] != first


def test_one_eval_is_enough(load):
    protocol = load("name: x\nevals: [{name: load, type: host.load}]\n")
    assert protocol.resolved()["pairs"] is None
    assert protocol.deadline_s > 0


EVAL = "name: x\nevals:\n- name: a\n  type: host.memory\n"


@pytest.mark.parametrize(
    ("text", "line", "rule", "words", "next_words"),
    [
        ("", 1, "bad-value", "not a protocol", "begin"),
        ("[]", 1, "bad-value", "not a protocol", "begin"),
        ("name: x\n", 1, "missing-key", "evals is missing", "add"),
        ("evals: [{name: a, type: host.load}]\n", 1, "missing-key", "name is missing", "add"),
        ("name: x\nevals: []\n", 2, "bad-value", "evals is not a list", "list them"),
        ("name: x\nevals: 3\n", 2, "bad-value", "evals is not a list", "list them"),
        ("name: x\nevals:\n- 3\n", 3, "bad-value", "not an eval", "write"),
        (
            "name: x\neval: []\nevals: [{name: a, type: host.load}]\n",
            2,
            "unknown-key",
            "no eval",
            "did you mean evals?",
        ),
        ("name: x\nevals:\n- name: a\n", 3, "missing-key", "type is missing", "add"),
        ("name: x\nevals:\n- type: host.load\n", 3, "missing-key", "name is missing", "add"),
        ("name: x\nevals:\n- name: a\n  type: [b]\n", 4, "bad-value", "type is not a text", "change"),
        (
            "name: x\nevals:\n- name: a\n  type: host.memroy\n",
            4,
            "unknown-check",
            "no check",
            "did you mean host.memory?",
        ),
        (
            "name: x\nevals:\n- name: a\n  type: vetnode.evaluations.gpu_eval.GPUEvall\n",
            4,
            "unknown-check",
            "no check",
            "did you mean vetnode.evaluations.gpu_eval.GPUEval?",
        ),
        (
            "name: x\nevals:\n- name: a\n  type: vetnode.evaluations.random.RandomEval\n",
            4,
            "not-honoured",
            "dice",
            "remove",
        ),
        (EVAL + "  min_byte: 3\n", 5, "unknown-key", "host.memory takes no min_byte", "did you mean min_bytes?"),
        (EVAL + "  min_bytes: lots\n", 5, "bad-value", "min_bytes is not a size", "change"),
        (EVAL + "  min_bytes: -1\n", 5, "bad-value", "min_bytes is not a size", "change"),
        (EVAL + "  min_bytes: .inf\n", 5, "bad-value", "min_bytes is not a size", "change"),
        (EVAL + "  required: maybe\n", 5, "bad-value", "required is not true or false", "change"),
        (EVAL + "  deadline: 0\n", 5, "bad-value", "no time", "raise"),
        (EVAL + "  deadline: soon\n", 5, "bad-value", "not a duration", "change"),
        (EVAL + "  scope: rack\n", 5, "bad-value", "not one of its values", "change"),
        (EVAL + "  requirements: torch\n", 5, "bad-value", "requirements is not a list", "write"),
        (EVAL + "  requirements:\n  - torch\n  - 3\n", 7, "bad-value", "not a package", "change"),
        (
            EVAL + "- name: a\n  type: host.load\n",
            5,
            "bad-value",
            "two evals named a; the first is in line 3",
            "rename",
        ),
        (EVAL + "deadline: 0s\n", 5, "bad-value", "no time", "raise"),
        (EVAL + "confusion: 30\n", 5, "bad-value", "not a number from 0 to 1", "change"),
        (EVAL + "min_nodes: 1.5\n", 5, "bad-value", "not a whole number", "change"),
        (EVAL + "scheduler: pbs\n", 5, "bad-value", "not one of its values", "change"),
        (EVAL + "pip: {index: x}\n", 5, "unknown-key", "no index", "did you mean index_url?"),
        (EVAL + "pip: x\n", 5, "bad-value", "pip is not a table", "write"),
        (EVAL + "- {name: b, type: pair.bandwidth, backend: mpi}\n", 5, "bad-value", "not one of its values", "change"),
        (
            EVAL + "- {name: b, type: pair.bandwidth, min_bandwidth: 3Gb/s}\n",
            5,
            "bad-value",
            "not a bandwidth",
            "change",
        ),
        (
            EVAL + "- {name: b, type: pair.bandwidth}\n- {name: c, type: pair.bandwidth}\n",
            6,
            "bad-value",
            "tested twice; b does already",
            "remove",
        ),
        (EVAL + "- {name: c, type: host.commands}\n", 5, "missing-key", "commands is missing", "add"),
    ],
)
def test_a_fault_has_its_line_and_the_way_out(faults, text, line, rule, words, next_words):
    (fault,) = faults(text)
    assert words in fault.text
    assert next_words in fault.next
    assert (fault.line, fault.rule) == (line, rule)


def test_all_faults_are_said_at_once(faults):
    found = faults(
        "name: x\nevals:\n- name: a\n  type: host.memory\n  min_bytes: x\n- name: b\n  type: nothing\nmin_node: 3\n"
    )
    assert [(fault.line, fault.rule) for fault in found] == [
        (8, "unknown-key"),
        (5, "bad-value"),
        (7, "unknown-check"),
    ]


def test_ten_thousand_evals_are_read_and_one_more_is_not(load, faults):
    evals = "".join(f"- {{name: e{index}, type: host.load}}\n" for index in range(10_000))
    assert len(load(f"name: many\nevals:\n{evals}").resolved()["checks"]) == 10_000
    (fault,) = faults(f"name: many\nevals:\n{evals}- {{name: more, type: host.load}}\n")
    assert "too many" in fault.text


def test_a_protocol_that_is_not_there_is_told_with_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.yaml").write_text("")
    for given, near in (("quik", "quick"), ("node.yaml", "nodes.yaml")):
        with pytest.raises(DocumentError) as caught:
            load_protocol(given)
        assert caught.value.next == f"did you mean {near}?"
