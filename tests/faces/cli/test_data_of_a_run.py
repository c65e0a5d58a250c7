"""A run with `[data]` from the document to the report: what ranks see, what is kept, what is told."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from cordee.runs.folder import RunFolder
from cordee.systems.data.node.shards.index import Shard, write_index

from .conftest import Cordee

pytestmark = pytest.mark.usefixtures("real")

SAMPLES, BYTES = 64, 512
SCRIPT = """
import os, time, cordee
rank = int(os.environ["RANK"])
assert os.path.isabs(os.environ["CORDEE_DATA_MY_SET"])
seen = []
data = cordee.dataset("my-set", batch=8, seed=1)
for epoch in range(3):
    for step, batch in enumerate(data):
        if epoch == 0:
            seen += [sample["bin"][0] for sample in batch] if isinstance(batch, list) else [value[0] for value in batch["bin"]]
        cordee.log(step=step, loss=1.0)
        time.sleep(0.05)
print("seen", len(set(seen)), flush=True)
"""


def _packed(folder: Path) -> None:
    """Pack samples of one repeated byte each into a tar of the standard library, with an index."""
    folder.mkdir()
    samples = [bytes([number]) * BYTES for number in range(SAMPLES)]
    with tarfile.open(folder / "corpus-000000.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, sample in enumerate(samples):
            member = tarfile.TarInfo(f"{number:04d}.bin")
            member.size = BYTES
            tar.addfile(member, io.BytesIO(sample))
    keys = [f"{number:04d}".encode() for number in range(SAMPLES)]
    columns = {
        "shard": np.zeros(SAMPLES, "u4"),
        "offset": np.arange(SAMPLES)[:, None] * 2 * BYTES + BYTES,
        "length": np.full((SAMPLES, 1), BYTES),
        "crc32": np.array([[zlib.crc32(sample)] for sample in samples]),
        "key_end": np.arange(1, SAMPLES + 1) * 4,
        "keys": np.frombuffer(b"".join(keys), "u1"),
    }
    shards = [Shard("corpus-000000.tar", (folder / "corpus-000000.tar").stat().st_size, SAMPLES)]
    write_index(folder / "dataset.index", name="corpus", fields=["bin"], classes=[], shards=shards, columns=columns)


@pytest.mark.gate
def test_a_run_reads_its_data_set_and_reports_what_that_cost(cordee: Cordee, tmp_path: Path) -> None:
    cordee.job(script=SCRIPT, toml='[data.my-set]\nfrom = "corpus"\n[need]\nranks_per_node = 2')
    _packed(tmp_path / "corpus")
    run = cordee.json("run")
    assert run["state"] == "finished", cordee("logs", run["run"]).stdout
    folder = RunFolder(run["folder"])
    (kept,) = json.loads((folder.documents / "data.json").read_text())["data"]
    assert (kept["samples"], kept["place"]) == (SAMPLES, str(tmp_path / "corpus"))
    assert not (folder.code / "corpus").exists()
    assert cordee("logs", run["run"]).stdout.count(f"seen {SAMPLES // 2}") == 2
    (shown,) = cordee.json("show", run["run"])["data_sets"]
    assert shown["identity"] == kept["identity"]
    (loaded,) = cordee.json("report", run["run"])["loading"]["sets"]
    assert (loaded["name"], loaded["ranks"], loaded["place"]) == ("my-set", 2, kept["place"])
    assert loaded["totals"]["samples"] >= SAMPLES
    assert loaded["requests"]
    assert loaded["wait_share"] is None or 0 <= loaded["wait_share"] <= 1
    assert "my-set" in (folder.report / "index.html").read_text()
