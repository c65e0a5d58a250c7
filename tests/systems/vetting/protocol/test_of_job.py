"""`[vet] protocol`: found beside the job, faults told with the job's, the site's part filled in."""

from __future__ import annotations

import pytest

PROTOCOL = "name: x\nevals:\n- name: load\n  type: host.load\n"
JOB = 'name = "a"\nrun = "x"\n[vet]\nprotocol = "p.yaml"\n'


@pytest.fixture
def beside(tmp_path):
    (tmp_path / "p.yaml").write_text(PROTOCOL)
    return tmp_path / "p.yaml"


def test_a_protocol_beside_the_job_is_loaded(load, beside):
    protocol = load(JOB).read["vetting"]
    assert protocol.path == beside
    assert protocol.text == PROTOCOL
    assert load('name = "a"\nrun = "x"\n').read["vetting"] is None


def test_a_built_in_one_needs_no_file(load):
    assert load(JOB.replace("p.yaml", "quick")).read["vetting"].name == "quick"


def test_what_is_wrong_with_it_is_told_with_the_faults_of_the_job(faults, beside):
    beside.write_text(PROTOCOL.replace("host.load", "host.laod") + "  max_ration: 3\n")
    (found,) = faults(JOB)
    assert (found.file, found.line, found.next) == (str(beside), 4, "did you mean host.load?")


def test_one_that_is_not_there_is_told_at_the_line_that_names_it(faults, beside):
    (found,) = faults(JOB.replace("p.yaml", "q.yaml"))
    assert found.file.endswith("cordee.toml")
    assert (found.line, found.text, found.next) == (4, "there is no protocol q.yaml", "did you mean p.yaml?")


def test_the_job_says_where_results_are_kept(load, beside, tmp_path):
    beside.write_text(PROTOCOL + "history: kept\n")
    assert load(JOB).read["vetting"].resolved()["history"] == {"folder": str(tmp_path / "kept")}
    assert load(JOB + 'history = "there"\n').read["vetting"].resolved()["history"] == {
        "folder": str(tmp_path / "there")
    }
    assert load(JOB + "history = false\n").read["vetting"].resolved()["history"] is None


def test_the_profile_says_where_the_site_keeps_results(load, faults, beside, tmp_path):
    clusters = tmp_path / "clusters"
    clusters.mkdir()
    profile = clusters / "local.toml"
    assert "does not say" in faults(JOB + "history = true\n")[0].text
    profile.write_text('[vetting]\nhistory = "/site/vettings"\n')
    assert load(JOB + "history = true\n").read["vetting"].resolved()["history"] == {"folder": "/site/vettings"}
    profile.write_text('[vetting]\ncollector = "https://collect.example"\ntoken_file = "/site/token"\n')
    where = {"url": "https://collect.example", "token_file": "/site/token"}
    assert load(JOB + "history = true\n").read["vetting"].resolved()["history"] == where
    assert load(JOB + 'history = "http://other"\n').read["vetting"].resolved()["history"] == {
        **where,
        "url": "http://other",
    }


def test_switches_and_baseline_come_from_the_profile(load, faults, beside, tmp_path):
    (tmp_path / "clusters").mkdir()
    (tmp_path / "fleet.json").write_text('{"gpu.gemm": {"value": 700.5, "n": 31}}')
    text = f'[vetting]\nbaseline = "{tmp_path}/fleet.json"\n[switches]\ns0 = "n[0-3]"\n'
    (tmp_path / "clusters" / "local.toml").write_text(text)
    document = load(JOB).read["vetting"].resolved()
    assert document["baseline"] == {"gpu.gemm": {"value": 700.5, "n": 31}}
    assert document["switches"] == {"s0": "n[0-3]"}
    (tmp_path / "fleet.json").write_text('{"gpu.gemm": 700}')
    (found,) = faults(JOB)
    assert "is not a baseline" in found.text
