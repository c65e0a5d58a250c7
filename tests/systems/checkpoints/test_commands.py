"""`cordee checkpoint`: what lies there, whether it is whole, its weights, what may go."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

import cordee
from cordee.core.errors import CordeeError
from cordee.runs.folder import RunFolder
from cordee.systems.checkpoints.cli import command


def call(*arguments, code=0):
    """Return what a command prints, a document where it is JSON."""
    done = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if isinstance(done.exception, CordeeError):
        assert done.exception.exit_code == code
        return str(done.exception)
    assert done.exit_code == code, done.output
    return json.loads(done.stdout) if "--json" in arguments else done.stdout


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Return a folder with five checkpoints of two runs, and the model that all of them hold."""
    import torch

    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.BatchNorm1d(4)).to(torch.float64)
    for run, steps in (("a-1", (1, 2, 30)), ("b-2", (4, 5))):
        monkeypatch.setenv("CORDEE_RUN_ID", run)
        saver = cordee.checkpointer(model, folder=tmp_path / "saved", keep=9)
        for step in steps:
            saver.save(step)
    (tmp_path / "saved" / "step-7.pt").write_bytes(b"")
    return tmp_path / "saved", model


def tensors(path: Path):
    import numpy

    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    kinds = {"F64": "<f8", "F32": "<f4", "I64": "<i8"}
    return {
        name: numpy.frombuffer(data[8 + length :][slice(*one["data_offsets"])], kinds[one["dtype"]]).reshape(
            one["shape"]
        )
        for name, one in header.items()
    }


def test_all_are_listed_with_their_runs_and_what_is_not_whole(saved):
    document = call("list", str(saved[0]), "--json")
    said = [(one["step"], one["run"], one["complete"], one["tier"]) for one in document["checkpoints"]]
    assert said[:3] == [(1, "a-1", True, "shared"), (2, "a-1", True, "shared"), (4, "b-2", True, "shared")]
    assert said[4:] == [(7, None, False, "shared"), (30, "a-1", True, "shared")]
    assert document["checkpoints"][4]["reason"] == "it is empty"


@pytest.mark.parametrize(
    "names", [("epoch=3-step=40.ckpt", "epoch=4-step=50.ckpt"), ("checkpoint-40", "checkpoint-50"), ("iter_0000040",)]
)
def test_checkpoints_of_other_tools_in_a_folder_are_known_by_their_names(tmp_path, names):
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    listed = call("list", tmp_path, "--json")["checkpoints"]
    assert [(one["name"], one["complete"]) for one in listed] == [(name, True) for name in names]
    call("verify", tmp_path)


def test_to_verify_nothing_is_no_success(tmp_path):
    assert "no checkpoint lies in" in call("verify", tmp_path, code=1)


def test_checkpoints_of_a_run_whose_plan_lacks_what_came_later_are_listed(tmp_path):
    folder = RunFolder.create(tmp_path / "runs", "a-20261101T000000Z-abcd")
    policy = {"path": str(tmp_path / "saves"), "pattern": "step-*"}
    folder.plan.write_text(json.dumps({"schema": "cordee.plan/1", "steps": [{"checkpoint": policy}]}))
    (tmp_path / "saves").mkdir()
    (tmp_path / "saves/step-7").write_bytes(b"x")
    assert [one["step"] for one in call("list", folder.root, "--json")["checkpoints"]] == [7]
    call("verify", folder.root)
    folder.plan.write_text("[]")
    assert "the plan of this run cannot be read" in call("list", folder.root, code=5)


def test_a_flipped_bit_is_found_and_the_code_is_1(saved):
    path = saved[0] / "step-000000002" / "__0_0.distcp"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = call("verify", str(saved[0] / "step-000000002"), "--json", code=1)
    (one,) = done["checkpoints"]
    assert (one["ok"], one["checked"]) == (False, True)
    assert "__0_0.distcp is damaged" in one["problem"]
    assert call("verify", str(saved[0] / "step-000000001")) == "step-000000001: whole\n"


def test_weights_come_out_whole_in_files_of_a_bounded_size(saved, tmp_path):
    folder, model = saved
    one = call("export", folder / "step-000000030", "--to", str(tmp_path / "one"), "--json")
    assert (one["files"], one["tensors"]) == (["model.safetensors"], 7)
    found = tensors(tmp_path / "one" / "model.safetensors")
    assert {name: value.tolist() for name, value in found.items()} == {
        name: value.tolist() for name, value in model.state_dict().items()
    }
    call("export", str(folder), "--to", str(tmp_path / "many"), "--shard-size", "100B", "--dtype", "float32")
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    parts = {name: tensors(tmp_path / "many" / file)[name] for name, file in index["weight_map"].items()}
    assert parts.keys() == found.keys()
    assert parts["0.weight"].dtype.name == "float32"
    assert parts["0.weight"] == pytest.approx(found["0.weight"], rel=1e-6)


@pytest.mark.parametrize(
    ("target", "more", "code", "said"),
    [
        ("saved", (), 2, "there is something already"),
        ("new", ("--shard-size", "big"), 2, "--shard-size"),
    ],
)
def test_an_export_that_cannot_be_is_refused_and_leaves_nothing(saved, tmp_path, target, more, code, said):
    done = call("export", str(saved[0]), "--to", str(tmp_path / target), *more, code=code)
    assert said in done
    assert os.listdir(tmp_path) == ["saved"]


def test_only_old_ones_go_and_only_when_that_is_said(saved):
    folder = saved[0]
    before = sorted(os.listdir(folder))
    asked = call("prune", str(folder), "--keep", "1", "--milestones", "10")
    assert asked.splitlines()[0].startswith("would go: step-000000001")
    assert sorted(os.listdir(folder)) == before
    call("prune", str(folder), "--keep", "1", "--yes")
    assert sorted(os.listdir(folder)) == ["step-000000005", "step-000000030", "step-7.pt"]
