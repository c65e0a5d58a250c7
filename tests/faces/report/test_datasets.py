"""The catalogue holds what the code writes: every metric, event and field, with words and units."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cordee
from cordee.faces.report.datasets import catalogue_document, datasets
from cordee.faces.report.datasets.code import class_fields, document_keys, journal_events
from cordee.faces.report.datasets.words import EVENTS, unit_of
from cordee.telemetry.node.catalogue import GROUPS
from cordee.testing.runs.programs import COUNTING

PACKAGE = Path(cordee.__file__).parent


def data_set(name):
    return next(one for one in datasets() if one.name == name)


def names(of):
    return [field.name for field in data_set(of).fields]


def test_every_metric_is_in_the_catalogue_with_its_unit_its_source_and_its_meaning():
    for group, metrics in GROUPS.items():
        assert names(f"samples/{group}") == [metric.name for metric in metrics]
        for field in data_set(f"samples/{group}").fields:
            assert field.unit, field.name
            assert field.meaning, field.name
            assert field.source, f"{field.name}: no sampler names it"


def test_every_event_that_any_module_writes_is_in_the_catalogue_with_its_meaning():
    written = set()
    for path in PACKAGE.rglob("*.py"):
        written |= set(re.findall(r'(?:journal[\w.()]*\.append|journalled)\(\s*"(\w+)"', path.read_text()))
    assert len(written) >= 20
    assert written <= set(names("journal"))
    assert set(journal_events()) == set(EVENTS)


def test_what_is_measured_told_and_journalled_has_words_or_a_unit():
    for one in datasets():
        if one.name.partition("/")[0] in ("samples", "facts", "events", "journal", "views"):
            assert [field.name for field in one.fields if not field.meaning and not field.unit] == [], one.name


def test_fields_of_events_are_those_that_are_written():
    assert journal_events()["checkpoint_seen"] == ["name", "step"]
    assert "rank_exited.signal" in names("journal")


def test_documents_are_told_by_the_functions_that_write_them():
    assert {"score", "diagnosis[].share", "energy_joules"} <= set(names("score"))
    assert {"verdict", "nodes[].results[].threshold"} <= set(names("vetting"))
    assert {"run", "lost.repeated_s"} <= set(names("report"))
    assert {"uuid", "memory_bytes", "shared"} <= set(names("facts/gpu"))


def test_no_field_is_there_twice_and_names_are_unique():
    for one in datasets():
        fields = [field.name for field in one.fields]
        assert len(fields) == len(set(fields)), one.name
        assert fields, one.name
    assert len({one.name for one in datasets()}) == len(datasets())


def test_the_catalogue_is_json():
    document = json.loads(json.dumps(catalogue_document()))
    assert document["schema"] == "cordee.catalogue/1"
    assert document["datasets"][0]["fields"][0]["unit"] == "ratio"


@pytest.mark.parametrize(
    ("name", "kind", "unit"),
    [
        ("delay_s", "", "s"),
        ("memory_bytes", "", "bytes"),
        ("started_at", "float | None", "s, UTC epoch"),
        ("network_receive_bytes_per_second", "", "1/s"),
        ("node", "str", ""),
    ],
)
def test_units_are_what_names_end_in(name, kind, unit):
    assert unit_of(name, kind) == unit


def test_a_docstring_gives_the_meaning_of_fields_and_one_line_may_speak_of_several():
    from cordee.core.findings import Finding

    found = class_fields(Finding)
    assert found["rule"][1].startswith("stable identifier")
    assert found["file"][1] == found["line"][1]
    assert found["given"][0] == "Any"


def test_keys_of_nested_documents_have_the_way_to_them():
    assert document_keys(made) == ["a", "a.b", "many", "many[].node", "later"]


def made(things):
    found = {"a": {"b": 1}, "many": [{"node": thing} for thing in things]}
    found["later"] = 2
    return found


def test_a_real_run_leaves_nothing_that_the_catalogue_does_not_know(tmp_path):
    (tmp_path / "train.py").write_text(COUNTING)
    (tmp_path / "cordee.toml").write_text('name = "t"\nrun = "python train.py 20 0.1"\nvet.max_load = 1000.0\n')
    subprocess.run([sys.executable, "-m", "cordee.faces.cli", "run"], check=True, cwd=tmp_path, timeout=150)
    run = cordee.open_run(next((tmp_path / "runs").glob("*-*")))
    for group in run.groups():
        assert set(run.metrics(group)) <= set(names(f"samples/{group}"))
        for facts in run.facts(group).values():
            known = set(names(f"facts/{group}"))
            assert {key for about in facts["devices"].values() for key in about} <= known
    known = set(names("journal"))
    for path in run.folder.journal.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            assert event["event"] in known
            assert set(event) <= known | {name.partition(".")[2] for name in known}
