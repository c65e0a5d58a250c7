"""What systems find on nodes: one finding of the run for each cause, again where it is worse, and not twice by two supervisors."""

from __future__ import annotations

import pytest

from cordee.control.supervisor.node_findings import NodeFindings
from cordee.core.findings import Finding
from cordee.wire.messages import NodeFinding


class Journal:
    """Keeps what is written."""

    def __init__(self):
        self.found = []

    def append(self, event, **fields):
        self.found.append(Finding.from_document(fields["finding"]))


def found(cause, level=1, shared=False, ranks=()):
    finding = Finding("the disk is full", "warn", "x-disk", evidence={"ranks": list(ranks), "count": level})
    return NodeFinding(cause, level, shared, finding.document())


@pytest.fixture
def journal():
    return Journal()


def test_each_cause_is_written_once_for_each_node_and_again_only_where_it_is_worse(journal):
    findings = NodeFindings(journal)
    for level in (1, 1, 2, 2, 1):
        findings.tell({"n1": (found("a", level, ranks=(4,)),)})
    findings.tell({"n1": (found("a", 2),), "n2": (found("a", 1),)})
    assert [(one.text, one.evidence["nodes"], one.evidence["count"]) for one in journal.found] == [
        ("n1: the disk is full", ["n1"], 1),
        ("n1: the disk is full", ["n1"], 2),
        ("n2: the disk is full", ["n2"], 1),
    ]
    assert journal.found[0].place() == {"ranks": [4], "nodes": ["n1"], "where": None}


def test_what_nodes_share_is_one_finding_and_another_only_when_twice_as_many_have_it(journal):
    findings = NodeFindings(journal)
    names = [f"n{number}" for number in range(8)]
    for count in (2, 3, 4, 5, 8):
        findings.tell({name: (found("mount", shared=True, ranks=(int(name[1:]),)),) for name in names[:count]})
    assert [len(one.evidence["nodes"]) for one in journal.found] == [2, 4, 8]
    assert journal.found[0].text == "n0, n1: the disk is full"
    assert journal.found[-1].text == "n0, n1, n2, n3, n4 and 3 more: the disk is full"
    assert journal.found[1].evidence["ranks"] == [0, 1, 2, 3]


def test_a_second_supervisor_writes_only_what_is_worse_than_the_first_has_written(journal):
    NodeFindings(journal).tell({"n1": (found("a", 2), found("b", shared=True)), "n2": (found("b", shared=True),)})
    later = Journal()
    findings = NodeFindings(later)
    findings.told_before([*journal.found, Finding("something else", evidence=["no", "object"])])
    findings.tell({"n1": (found("a", 2), found("b", shared=True))})
    assert later.found == []
    findings.tell({"n1": (found("a", 3),)})
    assert [one.evidence["count"] for one in later.found] == [3]


def test_a_run_has_only_so_many_of_them(journal):
    NodeFindings(journal).tell({f"n{number}": (found("a"),) for number in range(500)})
    assert len(journal.found) == 201
    assert journal.found[-1].rule == "node-findings-capped"
