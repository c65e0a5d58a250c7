"""Protocols that were written for vetnode are read as they are."""

from __future__ import annotations

import pytest

from cordee.core.errors import DocumentError
from cordee.systems.vetting.protocol.document import load_protocol
from cordee.systems.vetting.protocol.vetnode import VETNODE

# As a published protocol is printed: with a number before each line, which took a blank from two of them.
PRINTED = """\
1 name: "ML Training Node Vetting"
2 evals:
3 - name: "Check GPU"
4   type: vetnode.evaluations.gpu_eval.GPUEval
5   max_temp: 30 #(celsius)
6   max_used_memory: 0.2 # (%)
7 - name: "NCCLBandwidth"
8   type: vetnode.evaluations.nccl_eval.NCCEval
9   min_bandwidth: 90.0 #(GBps)
10  requirements:
11    - torch
12 - name: "CudaKernel"
13   type: vetnode.evaluations.cuda_eval.CUDAEval
14   requirements:
15     - cuda-python
16     - numpy
"""
LISTING = """\
name: "ML Training Node Vetting"
evals:
- name: "Check GPU"
  type: vetnode.evaluations.gpu_eval.GPUEval
  max_temp: 30 #(celsius)
  max_used_memory: 0.2 # (%)
- name: "NCCLBandwidth"
  type: vetnode.evaluations.nccl_eval.NCCEval
  min_bandwidth: 90.0 #(GBps)
  requirements:
    - torch
- name: "CudaKernel"
  type: vetnode.evaluations.cuda_eval.CUDAEval
  requirements:
    - cuda-python
    - numpy
"""


@pytest.fixture
def load(tmp_path):
    def call(text):
        (tmp_path / "config.yaml").write_text(text)
        return load_protocol(tmp_path / "config.yaml")

    return call


def one(load, *lines, name="NCCL", package="nccl_pytorch_eval.NcclPytorchEval"):
    text = f"name: x\nscheduler: slurm\nevals:\n- name: {name}\n  type: vetnode.evaluations.{package}\n"
    return load(text + "".join(f"  {line}\n" for line in lines))


def said(protocol):
    return " ".join(finding.text for finding in protocol.findings)


def test_the_published_listing_is_accepted_as_it_is_written(load):
    document = load(LISTING).resolved()
    assert document["name"] == "ML Training Node Vetting"
    found = {entry["name"]: (entry["check"], entry["parameters"], entry["required"]) for entry in document["checks"]}
    assert found["Check GPU: gpu.temperature"][1]["max_c"] == 30
    assert found["Check GPU: gpu.residue"][1]["max_used_ratio"] == 0.2
    assert found["Check GPU: gpu.inventory"][0] == "gpu.inventory"
    assert found["NCCLBandwidth: gpu.allreduce"][1]["min_bandwidth"] == 90e9
    assert found["NCCLBandwidth: gpu.allreduce"][1]["device"] == "gpu"
    assert found["CudaKernel"][0] == "gpu.cuda"
    assert all(required for _, _, required in found.values())
    assert document["pairs"]["name"] == "NCCLBandwidth: pair.bandwidth"
    assert document["pairs"]["backend"] == "torch"
    assert document["requirements"] == ["torch", "cuda-python", "numpy"]


def test_the_listing_is_accepted_with_the_numbers_of_its_lines_too(load):
    printed, plain = load(PRINTED), load(LISTING)
    assert printed.resolved() == plain.resolved()
    assert printed.findings[0].rule == "printed-numbers"
    assert [finding.line for finding in printed.findings[1:]] == [finding.line for finding in plain.findings]


def test_a_fault_in_a_printed_listing_has_its_line(load):
    with pytest.raises(DocumentError) as caught:
        load(PRINTED.replace("max_temp", "max_tmp"))
    assert {fault.line for fault in caught.value.findings} == {3, 5}


def test_a_text_that_only_begins_with_a_number_is_left_alone(load):
    with pytest.raises(DocumentError) as caught:
        load("1 name: x\nevals: []\n")
    assert "printed" not in caught.value.text


@pytest.mark.parametrize(
    ("given", "bytes_per_s"),
    [("15", 15e9), ("90.0", 90e9), ("20 GB/s", 20 * 2**30), ("1.5 TB/s", 1.5 * 2**40), ("512mb/s", 512 * 2**20)],
)
def test_bandwidths_are_read_as_vetnode_reads_them(load, given, bytes_per_s):
    document = one(
        load, "topology: intranode", f"min_bandwidth: {given}", package="nccl_lib_eval.NcclLibEval"
    ).resolved()
    assert document["checks"][0]["parameters"]["min_bandwidth"] == bytes_per_s


def test_what_is_not_given_is_as_in_vetnode(load):
    document = one(load).resolved()
    assert document["checks"][0]["parameters"]["min_bandwidth"] == 15 * 2**30
    assert document["checks"][0]["parameters"]["payload"] == 4 * 2**30
    internet = one(load, "host: example.org", package="internet_access.InternetAccessEval").resolved()
    assert internet["checks"][0]["parameters"] == {"host": "example.org", "port": 53, "timeout": 3.0}


@pytest.mark.parametrize("package", ["nccl_lib_eval.NcclLibEval", "rccl_lib_eval.RcclLibEval"])
def test_a_topology_becomes_what_looks_at_it(load, package):
    inside = one(load, "topology: intranode", "min_bandwidth: 200 GB/s", package=package).resolved()
    assert [entry["check"] for entry in inside["checks"]] == ["gpu.allreduce"]
    assert inside["pairs"] is None
    between = one(load, "topology: internode", "payload: 8 GB", "min_bandwidth: 20 GB/s", package=package).resolved()
    assert between["checks"] == []
    assert between["pairs"]["min_bandwidth_bytes_per_s"] == 20 * 2**30
    assert between["pairs"]["payload_bytes"] == 256 * 2**20
    assert between["pairs"]["name"] == "NCCL"
    both = one(load, "topology: full", package=package).resolved()
    assert both["checks"]
    assert both["pairs"]["min_bandwidth_bytes_per_s"] is None


def test_what_is_not_quite_the_same_is_said(load):
    protocol = one(load, "method: broadcast", "warmup: {payload: 256 MB, runs: 2}", "scheduler: slurm")
    for words in (
        "method broadcast is measured as an all-reduce",
        "warmup",
        "min_bandwidth holds for the GPUs of each",
    ):
        assert words in said(protocol)
    assert all(finding.severity == "info" and finding.line == 4 for finding in protocol.findings)
    assert "all-reduce" not in said(one(load, "method: allreduce"))


def test_roundrobin_is_a_test_of_pairs(load):
    document = one(load, "method: roundrobin", "min_bandwidth: 20 GB/s").resolved()
    assert document["checks"] == []
    assert document["pairs"]["min_bandwidth_bytes_per_s"] == 20 * 2**30


def test_several_tests_of_the_network_become_one_that_is_as_strict_as_all(load):
    kind = "type: vetnode.evaluations.nccl_lib_eval.NcclLibEval, topology: internode"
    document = load(
        "name: x\nevals:\n"
        f"- {{name: a, {kind}, min_bandwidth: 10 GB/s, payload: 128 MB, required: false}}\n"
        f"- {{name: b, {kind}, min_bandwidth: 20 GB/s, payload: 64 MB}}\n"
    ).resolved()
    pairs = document["pairs"]
    assert (pairs["name"], pairs["required"]) == ("a", True)
    assert (pairs["min_bandwidth_bytes_per_s"], pairs["payload_bytes"]) == (20 * 2**30, 2**27)


def test_a_requirement_may_carry_options_of_pip(load):
    protocol = load(
        "name: x\npip:\n   index_url: https://packages.example/simple\nevals:\n"
        "- name: c\n  type: vetnode.evaluations.cuda_eval.CUDAEval\n  cuda_home: /usr/local/cuda\n"
        "  requirements:\n  - [torch, '--index-url', 'https://packages.example/cu126']\n  - numpy\n"
        "- name: d\n  type: vetnode.evaluations.cuda_eval.CUDAEval\n  requirements: [numpy]\n"
    )
    assert protocol.requirements == [["torch", "--index-url", "https://packages.example/cu126"], "numpy"]
    assert protocol.index_url == "https://packages.example/simple"
    assert protocol.resolved()["checks"][0]["parameters"]["cuda_home"] == "/usr/local/cuda"


def test_variables_are_taken_as_they_are_written(load):
    lines = ["expected:", "  ONE: 1.10", '  TWO: "x"', "  ANY: null", "  YES: yes"]
    document = one(load, *lines, package="env_var_eval.EnvVarEval").resolved()
    expected = {"ONE": "1.10", "TWO": "x", "ANY": None, "YES": "yes"}
    assert document["checks"][0]["parameters"]["expected"] == expected


@pytest.mark.parametrize("name", VETNODE)
def test_a_key_that_a_class_does_not_take_is_refused(load, name):
    with pytest.raises(DocumentError) as caught:
        load(f"name: x\nevals:\n- name: a\n  type: {name}\n  nonsense: 1\n")
    assert any(fault.rule == "unknown-key" and fault.line == 5 for fault in caught.value.findings)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("min_bandwidth: 15 GB", "min_bandwidth is not a bandwidth"),
        ("min_bandwidth: -1", "min_bandwidth is not a bandwidth"),
        ("payload: much", "payload is not a size"),
        ("method: alltoall", "method is not one of its values"),
    ],
)
def test_a_mistyped_threshold_is_refused(load, line, words):
    with pytest.raises(DocumentError) as caught:
        one(load, line)
    assert words in caught.value.text
    assert caught.value.line == 6
