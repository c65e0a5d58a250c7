"""`cordee.load` loads the bytes that were looked at, and nothing that does harm."""

from __future__ import annotations

import functools
import io
import json
import os
import pickle
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch

import cordee
from cordee.systems.scan.node.load import RefusedFile

from . import made_files as made


@pytest.fixture
def canary(tmp_path):
    path = tmp_path / "canary"
    yield path
    assert not path.exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_checkpoint_of_torch_is_loaded(tmp_path, zipped):
    state = {"weights": torch.arange(6.0).reshape(2, 3), "step": 7}
    torch.save(state, tmp_path / "model.pt", _use_new_zipfile_serialization=zipped)
    loaded = cordee.load(tmp_path / "model.pt")
    assert loaded["step"] == 7
    assert torch.equal(loaded["weights"], state["weights"])


def test_safetensors_and_numpy_are_loaded(tmp_path):
    (tmp_path / "a").write_bytes(
        made.safetensors({"x": bytes(range(6))}, x={"dtype": "U8", "shape": [2, 3], "data_offsets": [0, 6]})
    )
    assert cordee.load(tmp_path / "a")["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    np.save(tmp_path / "b.npy", np.arange(3))
    np.savez(tmp_path / "c.npz", one=np.arange(2))
    assert cordee.load(tmp_path / "b.npy").tolist() == [0, 1, 2]
    assert cordee.load(tmp_path / "c.npz")["one"].tolist() == [0, 1]


def test_a_plain_pickle_of_harmless_things_is_loaded(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps({"a": np.arange(3), "b": {1, 2}}))
    assert cordee.load(tmp_path / "a")["b"] == {1, 2}


def test_a_file_that_does_not_fit_in_memory_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "holes.pt", "wb") as file:
        file.write(b"\x80\x04")
        file.truncate(1 << 40)
    with pytest.raises(RefusedFile, match=r"1\.1 TB.* memory"):
        cordee.load(tmp_path / "holes.pt")


def test_a_poisoned_file_is_refused_with_its_reason(tmp_path, canary):
    torch.save({"weights": torch.ones(2), "x": made.Payload(canary)}, tmp_path / "model.pt")
    with pytest.raises(RefusedFile, match="system") as raised:
        cordee.load(tmp_path / "model.pt")
    assert raised.value.file == str(tmp_path / "model.pt")
    assert raised.value.next


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_run_says_which_file_a_rank_refused_and_does_not_try_it_again(tmp_path, canary):
    (tmp_path / "bad.bin").write_bytes(pickle.dumps(made.Payload(canary)))
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text(f"import cordee\ncordee.load({str(tmp_path)!r} + '/bad' + '.bin')\n")
    (tmp_path / "job" / "cordee.toml").write_text('name = "a"\nrun = "python train.py"\n')
    ran = json.loads(made.cordee("run", tmp_path / "job", "--runs", tmp_path / "runs", "--json").output)
    assert (ran["state"], ran["restarts"]) == ("failed", 0)
    (finding,) = (one for one in ran["findings"] if one["rule"].startswith("scan-"))
    assert finding["rule"] == "scan-model-pickle-call"
    assert str(tmp_path / "bad.bin") in finding["text"]
    assert "--explain model-pickle-call" in finding["next"]


def test_what_is_not_known_is_refused_unless_the_run_allows_it(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(made.call("collections", "ChainMap"))
    with pytest.raises(RefusedFile, match="not known to be harmless"):
        cordee.load(tmp_path / "a")
    monkeypatch.setenv("CORDEE_SCAN_ALLOW", json.dumps(["collections.ChainMap"]))
    assert list(cordee.load(tmp_path / "a")) == []


def test_without_the_scan_nothing_unknown_is_run_either(tmp_path, canary, monkeypatch):
    monkeypatch.setenv("CORDEE_SCAN", "off")
    (tmp_path / "a").write_bytes(pickle.dumps(made.Payload(canary)))
    with pytest.raises(pickle.UnpicklingError):
        cordee.load(tmp_path / "a")
    torch.save(made.Payload(canary), tmp_path / "b")
    with pytest.raises(pickle.UnpicklingError):
        cordee.load(tmp_path / "b")


def test_a_pickle_within_a_pickle_is_never_run_and_tensors_there_are_loaded(tmp_path, canary, monkeypatch):
    inner = io.BytesIO()
    torch.save(made.Payload(canary), inner, _use_new_zipfile_serialization=False)
    text = inner.getvalue().decode("latin1").encode()
    encoded = b"c_codecs\nencode\nX" + struct.pack("<I", len(text)) + text + b"X\x06\0\0\0latin1\x86R"
    (tmp_path / "bad").write_bytes(b"\x80\x02ctorch.storage\n_load_from_bytes\n" + encoded + b"\x85R.")
    (tmp_path / "good").write_bytes(pickle.dumps({"a": torch.arange(3), "b": functools.partial(int, base=2)}))
    for policy in ("block", "off"):
        monkeypatch.setenv("CORDEE_SCAN", policy)
        with pytest.raises((RefusedFile, pickle.UnpicklingError)):
            cordee.load(tmp_path / "bad")
        loaded = cordee.load(tmp_path / "good")
        assert loaded["a"].tolist() == [0, 1, 2]
        assert loaded["b"]("11") == 3


def test_who_changes_the_file_while_it_is_looked_at_changes_nothing(tmp_path, canary, monkeypatch):
    from cordee.systems.scan.node import load as loading

    path = tmp_path / "a"
    path.write_bytes(pickle.dumps({"good": 1}))
    look = loading._verdict

    def changed(descriptor, name):
        verdict = look(descriptor, name)
        path.write_bytes(pickle.dumps(made.Payload(canary)))
        return verdict

    monkeypatch.setattr(loading, "_verdict", changed)
    assert cordee.load(path) == {"good": 1}


def test_a_fifo_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="FIFO"):
        cordee.load(tmp_path / "fifo")


def test_it_is_there_from_the_runs_own_bundle(tmp_path):
    from cordee.job.submit.bundle import write_node_zip

    write_node_zip(tmp_path / "node.zip")
    (tmp_path / "a").write_bytes(pickle.dumps([1, 2]))
    script = "import cordee, sys; assert 'node.zip' in cordee.__file__; print(cordee.load(sys.argv[1]))"
    command = [sys.executable, "-c", script, str(tmp_path / "a")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path / "node.zip")}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[1, 2]", done.stderr
