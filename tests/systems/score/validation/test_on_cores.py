"""The whole way for real, without a GPU: workloads, recorder, loader, score, judgement."""

from __future__ import annotations

import json

import pytest

from cordee.faces.cli import main

pytestmark = pytest.mark.usefixtures("real")


def test_workloads_of_cores_are_recorded_scored_and_judged_by_what_they_know_of_themselves(tmp_path, capsys):
    target = tmp_path / "validation"
    options = ["--device", "cpu", "--only", "core-duty-25,core-idle", "--interval", "250ms", "--minutes", "0.3"]
    with pytest.raises(SystemExit) as ended:
        main(["score", "validate", *options, "-o", str(target), "--json"])
    document = json.loads(capsys.readouterr().out)
    busy, idle = document["workloads"]
    # How near the two are depends on what else this machine does; what is said of it does not.
    assert busy["bands"][0]["value"] == pytest.approx(busy["told"]["cpu_cores"], abs=0.2)
    assert (idle["found"], idle["class_right"]) == ("idle", True)
    well = {one["status"] for one in (busy, idle)} == {"pass"}
    assert (ended.value.code, document["verdict"]) == ((0, "pass") if well else (1, "fail")), document
    assert sorted(path.name for path in target.iterdir()) == ["core-duty-25", "core-idle", "results.json"]
    assert json.loads((target / "results.json").read_text()) == document
    with pytest.raises(SystemExit) as again:
        main(["score", "validate", *options, "-o", str(target)])
    assert again.value.code == 2
