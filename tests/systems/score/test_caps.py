from __future__ import annotations

import tomllib

import pytest

from cordee.core.documents.gpu_models import FILE, gpu_facts
from cordee.core.errors import DocumentError
from cordee.systems.score.roofs import read_caps, read_caps_file

NOWHERE = {"XDG_CONFIG_HOME": "/nowhere"}


@pytest.mark.parametrize(
    ("model", "sms"),
    [
        ("NVIDIA H100 80GB HBM3", 132),
        ("NVIDIA H100 PCIe", 114),
        ("NVIDIA GH200 480GB", 132),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 132),
        ("NVIDIA A100-SXM4-80GB", 108),
        ("NVIDIA L4", 58),
        ("NVIDIA L40S", 142),
        ("Tesla V100-SXM2-32GB", 80),
        ("A GPU of tomorrow", None),
    ],
)
def test_a_model_is_found_by_its_driver_s_name(model, sms):
    assert read_caps(environ=NOWHERE).of(model).sms == sms


@pytest.mark.parametrize("model", ["NVIDIA H100 PCIe", "NVIDIA GH200 480GB", "A GPU of tomorrow"])
def test_what_nobody_measured_is_said_to_be_the_fallback(model):
    caps = read_caps(environ=NOWHERE).of(model)
    assert (caps.pipe["tensor"], caps.dram, caps.measured) == (0.93, 0.80, False)
    assert caps.origin == "fallback, not measured"


def test_caps_that_were_measured_on_a_model_come_with_the_package():
    caps = read_caps(environ=NOWHERE).of("NVIDIA H100 80GB HBM3")
    assert (caps.pipe["tensor"], caps.dram, caps.measured) == (0.971, 0.907, True)
    assert caps.origin == "known kernels, driver 580.159, 2026-11-26"


def test_what_a_person_calibrated_wins_over_what_is_shipped_and_a_given_file_over_both(tmp_path):
    own = tmp_path / "cordee" / "gpu-caps.toml"
    own.parent.mkdir()
    own.write_text('[model."NVIDIA H100 80GB HBM3"]\ntensor = 0.9\ndram = 0.7\norigin = "n0"\ndate = "2026-11-21"\n')
    caps = read_caps(environ={"XDG_CONFIG_HOME": str(tmp_path)}).of("NVIDIA H100 80GB HBM3")
    assert (caps.pipe["tensor"], caps.dram, caps.measured, caps.origin) == (0.9, 0.7, True, "n0, 2026-11-21")
    assert caps.sms == 132
    given = tmp_path / "given.toml"
    given.write_text('[model."nvidia h100 80gb hbm3"]\ndram = 0.75\n')
    caps = read_caps(given, environ={"XDG_CONFIG_HOME": str(tmp_path)}).of("NVIDIA H100 80GB HBM3")
    assert (caps.pipe["tensor"], caps.dram) == (0.9, 0.75)


def test_a_model_that_was_calibrated_by_its_whole_name_keeps_the_peaks_of_its_family(tmp_path):
    given = tmp_path / "caps.toml"
    given.write_text('[model."NVIDIA GH200 480GB"]\ntensor = 0.88\norigin = "n0"\n')
    caps = read_caps(given, environ=NOWHERE).of("NVIDIA GH200 480GB")
    assert (caps.pipe["tensor"], caps.peak_flops, caps.sms) == (0.88, 990e12, 132)


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ('[model."X"]\ntensor = 0\n', 2, "tensor"),
        ('[model."X"]\n\ntenser = 0.9\n', 3, "tenser"),
        ('[model."X"]\ndram = "high"\n', 2, "dram"),
        ('[model."X"]\ndram = 80\n', 2, "share"),
        ("[models]\n", 1, "models"),
        ("[model\n", 1, "TOML"),
        ("model = 3\n", 1, "model"),
        ("[model]\nX = 3\n", 2, "table"),
    ],
)
def test_a_wrong_file_of_caps_is_told_with_its_line(tmp_path, text, line, word):
    path = tmp_path / "caps.toml"
    path.write_text(text)
    with pytest.raises(DocumentError) as raised:
        read_caps_file(path)
    assert (raised.value.file, raised.value.line) == (str(path), line)
    assert word in str(raised.value)


def test_a_misspelt_cap_is_told_with_the_one_that_was_meant(tmp_path):
    (tmp_path / "caps.toml").write_text('[model."X"]\ntenser = 0.9\n')
    with pytest.raises(DocumentError) as raised:
        read_caps_file(tmp_path / "caps.toml")
    assert raised.value.next == "did you mean tensor?"


def test_every_shipped_model_is_of_caps_and_says_where_its_peaks_are_from(tmp_path):
    path = tmp_path / "caps.toml"
    path.write_text("".join(FILE.read_text().partition("[fallback]")[1:]))
    models = read_caps_file(path)["model"]
    makers = ("sheet", "architecture paper", "limited to 500 W")  # what is no maker's sheet says what it is
    assert all(any(word in about["source"] for word in makers) for about in models.values())
    measured = [about for about in models.values() if not {"tensor", "fp64", "fp32", "fp16", "dram"}.isdisjoint(about)]
    assert measured
    assert all({"origin", "date"} <= about.keys() for about in measured)


def test_every_model_whose_peaks_are_known_is_known_to_a_job_s_need():
    models = tomllib.loads(FILE.read_text())["model"]
    assert [name for name in models if gpu_facts(name).memory is None] == []
