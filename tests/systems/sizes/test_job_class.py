"""A smaller request, and the class of jobs that then holds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cordee.systems.sizes.job_class import class_words

SITE = """
scheduler = "slurm"
[partitions.fast]
max_time = "4h"
[partitions.normal]
max_time = "24h"
default = true
[classes.short]
max_time = "2h"
partition = "fast"
[classes.long]
max_time = "20h"
partition = "normal"
qos = "long"
"""
SHAPE = {"nodes": 1, "ranks_per_node": 1, "gpus_per_node": 0}


@pytest.mark.parametrize(
    ("cluster", "partition", "time", "words"),
    [
        ("alps", "normal", "90min", "the class short (up to 2 h) holds it, in place of long: short jobs start sooner"),
        ("alps", "normal", "5h", None),
        ("alps", "fast", "90min", None),  # somebody chose it
        ("gone", "normal", "90min", None),
    ],
)
def test_a_class_of_shorter_jobs_is_told_where_the_new_time_falls_into_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str, partition: str, time: str, words: str | None
) -> None:
    (tmp_path / "alps.toml").write_text(SITE)
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    scheduler = {"partition": partition, "qos": "long"}
    plan: dict[str, Any] = {"cluster": cluster, "steps": [{"request": {"time_s": 36000.0, "scheduler": scheduler}}]}
    assert class_words(plan, {**SHAPE, "memory": "1GB", "time": time}) == words
