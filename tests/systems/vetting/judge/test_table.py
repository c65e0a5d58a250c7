"""The table of a vetting: short where all is well, exact where it is not, and safe to print."""

from __future__ import annotations

import pytest

from cordee.systems.vetting.node.judge.table import columns, reasons, render_table, rows


def result(check: str, status: str = "pass", evidence: str = "fine", **more: object) -> dict:
    return {"check": check, "name": check, "status": status, "evidence": evidence, "rule": None, **more}


def document(verdict: str = "exclude", exclude: tuple[str, ...] = ("n3",), nodes: int = 4, **more: object) -> dict:
    found = [
        {"node": f"n{index}", "verdict": "healthy", "results": [result("gpu.ecc")]} for index in range(1, nodes + 1)
    ]
    for node in found:
        if node["node"] in exclude:
            rule = {"id": "gpu.ecc-uncorrectable", "recovery": ["reset the GPU"]}
            node["verdict"] = "bad"
            node["results"] = [result("gpu.ecc", "fail", "GPU 1 (GPU-8a) has 2 uncorrectable errors", rule=rule)]
    empty = {"unavailable": [], "confused": [], "links": [], "pairs": []}
    head = {"protocol": "p", "verdict": verdict, "exclude": list(exclude), "reason": "because", "seconds": 1.0}
    return {**head, **empty, "nodes": found, **more}


def test_nodes_that_look_the_same_share_a_row():
    found = rows(document(nodes=4000))
    assert [row.nodes[:2] for row in found] == [["n3"], ["n1", "n2"]]
    assert len(render_table(document(nodes=4000)).splitlines()) < 12


def test_the_table_names_node_check_evidence_rule_and_next_step():
    text = render_table(document())
    assert "p: EXCLUDE - 3 of 4 nodes usable (1.0 s)" in text
    assert "n3: gpu.ecc fail: GPU 1 (GPU-8a) has 2 uncorrectable errors [gpu.ecc-uncorrectable]" in text
    assert "next: srun --exclude=n3 ..." in text
    assert "next: n3: reset the GPU" in text


def test_a_pipe_gets_words_and_a_terminal_marks():
    plain, painted = render_table(document()), render_table(document(), colour=True)
    assert "\x1b" not in plain
    assert "✗" not in plain
    assert "\x1b[31m" in painted
    assert "✗" in painted


def test_what_a_command_printed_cannot_reach_the_terminal():
    nasty = document()
    nasty["nodes"][2]["results"][0]["evidence"] = "\x1b]0;owned\x07\r\nline two\u202e"
    text = render_table(nasty)
    assert "\x1b" not in text
    assert "\r" not in text
    assert "\u202e" not in text


def test_many_checks_get_numbers_and_a_list_below():
    many = document(nodes=2, exclude=())
    for node in many["nodes"]:
        node["results"] = [result(f"some.rather-long-check-name-{number}") for number in range(20)]
    text = render_table(many, width=110)
    assert max(map(len, text.splitlines())) <= 200
    assert "  20 some.rather-long-check-name-19" in text


@pytest.mark.parametrize("verdict", ["continue", "abort"])
def test_other_verdicts_say_what_they_mean(verdict):
    text = render_table(document(verdict, exclude=()))
    assert ("4 of 4 nodes usable" in text) == (verdict == "continue")
    assert ("do not start" in text) == (verdict == "abort")


def test_what_is_no_fault_of_a_node_is_said_too():
    text = render_table(
        document(
            unavailable=[{"check": "gpu.xid", "reason": "the kernel log is closed", "nodes": ["n1", "n2"]}],
            confused=[{"check": "host.fingerprint", "text": "two halves differ", "nodes": ["n1"]}],
            links=[{"nodes": ["n1", "n2"], "text": "n1-n2 is slow"}],
            pairs=[{"round": 1, "nodes": ["n1", "n2"], "bytes_per_s": 2e9}],
        )
    )
    assert "could not be tested on 2 nodes: gpu.xid: the kernel log is closed" in text
    assert "no node is blamed, because the cause is shared: two halves differ" in text
    assert "link: n1-n2 is slow" in text
    assert "1 pair measured: slowest 2 GB/s" in text


def test_a_thousand_different_faults_are_cut_and_counted():
    many = document(nodes=1000, exclude=tuple(f"n{index}" for index in range(1, 1001)))
    for index, node in enumerate(many["nodes"]):
        node["results"][0]["evidence"] = f"fault {index}"
    text = render_table(many)
    assert "and 976 more reasons, in the document" in text
    assert len(text.splitlines()) < 60


def test_results_without_checks_give_no_table():
    empty = document(nodes=2, exclude=())
    for node in empty["nodes"]:
        node["results"] = []
    assert columns(empty) == []
    assert reasons(empty) == []
    assert "because" in render_table(empty)
