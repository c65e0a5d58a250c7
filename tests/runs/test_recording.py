from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from cordee.core.errors import RunFolderError, RunNotFound
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_grid, encode_schema
from cordee.telemetry.node.recording import RecordedRank, Recorder, claim_number, read_recorders, write_recorder
from cordee.telemetry.store.reader import open_run

T0 = 1_700_000_000.0


def recorder(number: int, **more) -> Recorder:
    rank = RecordedRank(rank=number, pid=7, argv=["python", "train.py"], started_at=T0, devices=["GPU-a"])
    return Recorder(number, f"n{number}", f"host{number}", 5, T0, 1.0, "0.1.0", ranks=[rank], **more)


def write_samples(folder: RunFolder, number: int) -> None:
    schema, encoded = encode_schema(f"n{number}", "gpu", 1.0, [f"GPU-{number}"], [{"name": "gpu_sm_ratio"}])
    writer = BlockLogWriter(folder.telemetry, number)
    writer.append(encoded + b"".join(encode_grid(schema, T0 + second, [number / 10]) for second in range(5)))
    assert writer.close()


def test_samplers_on_many_nodes_never_take_the_same_number(tmp_path):
    folder = RunFolder(tmp_path / "recording")
    with ThreadPoolExecutor(16) as pool:
        numbers = list(pool.map(lambda _: claim_number(folder), range(64)))
    assert sorted(numbers) == list(range(1, 65))


def test_documents_of_samplers_come_back_and_a_killed_one_is_told(tmp_path):
    folder = RunFolder(tmp_path / "recording")
    for number in (claim_number(folder), claim_number(folder)):
        write_recorder(folder, recorder(number, sources=["nvml-gpm"]))
    claim_number(folder)
    found, remarks = read_recorders(folder)
    assert found == [recorder(1, sources=["nvml-gpm"]), recorder(2, sources=["nvml-gpm"])]
    assert len(remarks) == 1
    assert remarks[0].startswith("3.json says nothing of its sampler")


def test_a_recording_opens_like_a_run_and_is_sealed_once_all_samplers_have_ended(tmp_path):
    folder = RunFolder(tmp_path / "recording")
    for number in (1, 2):
        assert claim_number(folder) == number
        write_samples(folder, number)
        write_recorder(folder, recorder(number, ended_at=T0 + 5 if number == 1 else None))
    run = open_run(folder.root)
    before = run.grid("gpu").values.tolist()
    assert before[0][0] == pytest.approx([0.1, 0.2])
    assert run.seal() is None
    write_recorder(folder, recorder(2, ended_at=T0 + 5))
    assert run.seal() == T0 + 4
    assert open_run(folder.root).grid("gpu").values.tolist() == before


def test_a_folder_that_is_neither_run_nor_recording_is_called_that(tmp_path):
    with pytest.raises(RunNotFound, match="neither a run nor a recording"):
        open_run(tmp_path)
    with pytest.raises(RunNotFound, match="no run"):
        open_run(tmp_path / "absent")


def test_a_place_that_cannot_be_written_is_told_with_what_to_do(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunFolderError) as raised:
        claim_number(RunFolder(tmp_path / "file" / "recording"))
    assert "-o DIR" in str(raised.value)
    assert os.listdir(tmp_path) == ["file"]
