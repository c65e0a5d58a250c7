"""Recordings of validations on real machines, judged again: `recorded/<machine>/<workload>`, no sample is made up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cordee.systems.score.validation.conduct import judge_folder
from cordee.systems.score.validation.judge import DOCUMENT

RECORDED = Path(__file__).parent / "recorded"
FOLDERS = sorted(path.parent for path in RECORDED.glob(f"*/*/{DOCUMENT}"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_recorded_workload_is_still_judged_right(folder, tmp_path):
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    judgement = judge_folder(copy)
    assert judgement.status == "pass", judgement


def test_recordings_name_no_paths_of_the_machine_they_come_from():
    assert FOLDERS
    for path in RECORDED.glob("*/*/recorders/[0-9]*.json"):
        words = [word for rank in json.loads(path.read_text())["ranks"] for word in rank["argv"]]
        assert not [word for word in words if "/" in word], path
