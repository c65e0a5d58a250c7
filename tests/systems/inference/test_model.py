"""From a checkpoint to what a server loads; what must not be served is refused, and says why."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from tests.systems.inference.conftest import EXAMPLE

from cordee.core.errors import CordeeError, DocumentError, UsageError
from cordee.systems.inference.model import prepare_model
from cordee.systems.inference.weights import NamedTensor, read_header, read_table, rename

SERVING = str(EXAMPLE / "serving")


def tensors(path: Path, **arrays: np.ndarray) -> None:
    header, at, parts = {}, 0, []
    for name, array in arrays.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
        parts.append(array.tobytes())
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def loaded(path: Path) -> dict[str, np.ndarray]:
    header, begin = read_header(path)
    data = path.read_bytes()[begin:]
    return {
        name: np.frombuffer(data[about["data_offsets"][0] : about["data_offsets"][1]], np.float32).reshape(
            about["shape"]
        )
        for name, about in header.items()
    }


def row(source: str, to: str, transpose: bool = False) -> NamedTensor:
    return NamedTensor.model_validate({"from": source, "to": to, "transpose": transpose})


def test_tensors_get_their_names_and_the_other_side_of_a_matrix(tmp_path):
    matrix, vector = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(4, dtype=np.float32)
    tensors(tmp_path / "model.safetensors", **{"blocks.11.w": matrix, "norm": vector})
    assert rename(tmp_path, (row("blocks.{n}.w", "h.{n}.kernel", True), row("norm", "ln"))) == 2
    found = loaded(tmp_path / "model.safetensors")
    assert sorted(found) == ["h.11.kernel", "ln"]
    assert (found["h.11.kernel"] == matrix.T).all()
    assert (found["ln"] == vector).all()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ((row("blocks.{n}.w", "h.{n}.w"),), "no row for the tensor norm"),
        ((row("blocks.{n}.w", "x"), row("norm", "x")), "two tensors would have one name"),
        ((row("blocks.{n}.w", "y"), row("norm", "x", True)), "no matrix"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, table, said):
    first = {"blocks.0.w": np.ones((2, 2), np.float32)}
    tensors(tmp_path / "a.safetensors", **first)
    tensors(tmp_path / "b.safetensors", norm=np.ones(3, np.float32))
    with pytest.raises(UsageError, match=said):
        rename(tmp_path, table)


def test_the_table_of_the_demo_is_right_and_a_wrong_one_says_where(tmp_path):
    assert len(read_table(EXAMPLE / "serving" / "weights.toml")) == 17
    path = tmp_path / "weights.toml"
    path.write_text('[[tensors]]\nfrom = "a"\ninto = "b"\n')
    with pytest.raises(DocumentError) as wrong:
        read_table(path)
    assert {one.line for one in wrong.value.findings} <= {1, 3}
    path.write_text("tensors = 3\n")
    with pytest.raises(DocumentError):
        read_table(path)


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_checkpoint_becomes_a_numbered_folder_with_all_that_a_server_loads(checkpoint, tmp_path):
    first = prepare_model(str(checkpoint), None, SERVING, tmp_path / "models")
    again = prepare_model(str(first), None, None, tmp_path / "models")
    assert [first.name, again.name] == ["1", "2"]
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in first.iterdir()} == {path.name for path in again.iterdir()} == names
    assert (first / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()


def test_the_configuration_is_found_beside_the_checkpoint(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "job" / "checkpoints")
    with pytest.raises(CordeeError, match="nothing says what model"):
        prepare_model(str(tmp_path / "job" / "checkpoints"), None, None, tmp_path / "models")
    shutil.copytree(SERVING, tmp_path / "job" / "serving")
    assert prepare_model(str(tmp_path / "job" / "checkpoints"), None, None, tmp_path / "models").name == "1"


def changed(tmp_path: Path, **values) -> str:
    folder = tmp_path / "serving"
    shutil.copytree(SERVING, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))
    return str(folder)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"n_layer": 3}, "it lacks"),
        ({"n_layer": 1}, "nothing takes"),
        ({"n_embd": 48}, "of another shape|cannot be loaded"),
        ({"auto_map": {"AutoModelForCausalLM": "evil.Model"}}, "code of the model's own"),
        ({"model_type": "nothing-known"}, "cannot be loaded"),
    ],
)
def test_weights_that_are_not_those_of_the_configuration_are_refused(checkpoint, tmp_path, values, said):
    with pytest.raises(CordeeError, match=said):
        prepare_model(str(checkpoint), None, changed(tmp_path, **values), tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_checkpoint_in_a_run_is_described_by_the_code_of_the_run(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "run" / "checkpoints")
    shutil.copytree(SERVING, tmp_path / "run" / "code" / "serving")
    step = next((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert (prepare_model(str(step), None, None, tmp_path / "models") / "tokenizer.json").is_file()


class Canary:
    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/cordee-canary-of-inference",)


def test_a_poisoned_file_among_the_weights_is_refused_and_not_run(checkpoint, tmp_path):
    good = prepare_model(str(checkpoint), None, SERVING, tmp_path / "models")
    (good / "model-2.safetensors").write_bytes(pickle.dumps(Canary()))
    with pytest.raises(DocumentError) as refused:
        prepare_model(str(good), None, None, tmp_path / "models")
    assert any(one.severity == "error" and "model-2" in (one.file or "") for one in refused.value.findings)
    assert not Path("/tmp/cordee-canary-of-inference").exists()


def test_a_folder_without_weights_or_tokenizer_says_what_is_missing(checkpoint, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(EXAMPLE / "serving" / "config.json", bare)
    with pytest.raises(CordeeError, match="no complete checkpoint"):
        prepare_model(str(bare), None, None, tmp_path / "models")
    with pytest.raises(CordeeError, match="no tokenizer"):
        prepare_model(str(checkpoint), None, str(bare), tmp_path / "models")
    with pytest.raises(CordeeError, match="no config"):
        prepare_model(str(checkpoint), None, str(tmp_path), tmp_path / "models")
