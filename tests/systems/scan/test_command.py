"""`cordee scan`, as people call it."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pickle
import re
import zipfile
from pathlib import Path

import pytest
import torch

import cordee
from cordee.core.secret_forms import FORMS
from cordee.job.submit.bundle import write_node_zip
from cordee.systems.scan import words
from cordee.systems.scan.rules import RULES

from . import made_files as made

KEYS = {
    "wandb": "export WANDB_API_KEY=a3f90b1c2d4e5f60718293a4b5c6d7e8f9012345",
    "hugging-face": "huggingface-cli login --token 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",
    "aws": "aws_access_key_id = AKIAQ3EGRTYUIOPLKJHG",
    "github": "git clone https://ghp_q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6j7K8@github.com/a/b",
    "openai": "OPENAI_API_KEY: sk-proj-q1W2e3R4t5Y6u7I8o9P0a1S2d3F4g5H6",
    "private-key": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\nq1W2e3\n-----END OPENSSH PRIVATE KEY-----",
}


def scan(*arguments):
    return made.cordee("scan", *arguments)


def test_a_folder_with_each_family_has_all_of_them_named(tmp_path):
    files = {
        "model.pt": made.call("os", "system", b"x"),
        "unknown.bin": made.call("somebodys.library", "Model"),
        "layers.keras": made.zipped(
            {"config.json": b'{"class_name": "F", "config": {"l": {"class_name": "Lambda", "config": {}}}}'}
        ),
        "model.onnx": made.onnx(location="/etc/passwd"),
        "model.gguf": made.gguf(tokenizer__chat_template="{{ x.__class__ }}"),
        "config.yaml": b"a: !!python/object/apply:os.system [x]\n",
        "archive.tar": made.tarred({"../out": b"x"}),
        "job.sh": KEYS["wandb"].encode(),
        "clean.txt": b"nothing here",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    result = scan(tmp_path, "--json")
    document = json.loads(result.output)
    assert result.exit_code == 1
    assert document["verdict"] == "block"
    assert {os.path.basename(one["path"]) for one in document["findings"]} == files.keys() - {"clean.txt"}
    assert all(one["next"] for one in document["findings"])
    shown = scan(tmp_path).output
    assert "9 files: block" in shown


@pytest.mark.parametrize("kind", sorted(KEYS))
def test_keys_are_found_and_not_repeated(tmp_path, kind):
    (tmp_path / "job.sh").write_text("#!/bin/bash\n" + KEYS[kind] + "\n")
    result = scan(tmp_path, "--json")
    assert [one["rule"] for one in json.loads(result.output)["findings"]] == [f"secret-{kind}"]
    assert "line 2" in result.output
    for word in KEYS[kind].replace("\n", " ").split():
        assert len(word) < 30 or word not in result.output
    assert scan(tmp_path, "--no-secrets").exit_code == 0


def test_keys_in_a_notebook_are_found(tmp_path):
    cell = {
        "cell_type": "code",
        "source": ["import wandb\n", "wandb.login(key='a3f90b1c2d4e5f60718293a4b5c6d7e8f9012345')\n"],
    }
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [cell], "nbformat": 4}))
    assert json.loads(scan(tmp_path, "--json").output)["findings"][0]["rule"] == "secret-wandb"


@pytest.mark.parametrize(
    "text",
    [
        "export WANDB_API_KEY=$(cat ~/.wandb)", "WANDB_API_KEY=your-api-key-here-xxxxxxxxxxxxxxxxxxxxxxxx", "token = tokenizer.encode(text)",
        "secret_key_position = some_function_name_that_is_long(value)", "commit 3c0b1c2d4e5f60718293a4b5c6d7e8f901234567",
        "password: ${DB_PASSWORD}", "api_key = os.environ['OPENAI_API_KEY']", "pip install risk-free-interest-rate-models-2",
        "ssh-keygen -t ed25519 # -----BEGIN PUBLIC KEY-----",
    ],
)  # fmt: skip
def test_what_is_no_key_is_none(tmp_path, text):
    (tmp_path / "job.sh").write_text(text + "\n")
    assert json.loads(scan(tmp_path, "--json").output)["findings"] == []


def test_histories_and_environments_are_not_entered_and_special_files_are_told(tmp_path):
    for folder in (".git", "env", "code"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "bad.pt").write_bytes(made.call("os", "system", b"x"))
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    os.mkfifo(tmp_path / "fifo")
    document = json.loads(scan(tmp_path, "--json").output)
    assert [one["path"] for one in document["findings"]] == [str(tmp_path / "code" / "bad.pt")]
    assert sorted(map(os.path.basename, document["left_out"])) == [".git", "env"]
    assert list(map(os.path.basename, document["special"])) == ["fifo"]


def test_of_a_runs_folder_the_tokens_of_its_processes_are_not_looked_at_and_all_else_is(tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, other):
        for name in ("control", "journal", "code"):
            (folder / name).mkdir(parents=True)
            (folder / name / "bad.pt").write_bytes(made.call("os", "system", b"x"))
    (run / "plan.json").write_text("{}")
    document = json.loads(scan(tmp_path, "--json").output)
    found = {os.path.relpath(one["path"], tmp_path) for one in document["findings"]}
    theirs = {f"{folder}/{name}/bad.pt" for folder in ("run", "other") for name in ("journal", "code")}
    assert found == {*theirs, "other/control/bad.pt"}
    assert document["left_out"] == [str(run / "control")]


def test_the_code_that_cordee_sends_with_a_run_is_clean_and_told_where_it_was_changed(tmp_path):
    write_node_zip(tmp_path / "node.zip")
    assert json.loads(scan(tmp_path, "--json").output)["findings"] == []
    with zipfile.ZipFile(tmp_path / "node.zip", "a") as archive:
        archive.writestr("cordee/more.py", "import torch\ntorch.load('a.pt', weights_only=False)\n")
        archive.writestr("cordee/model.pkl", made.call("os", "system", b"x"))
    found = json.loads(scan(tmp_path, "--json").output)["findings"]
    assert {one["rule"] for one in found} == {"model-pickle-call", "model-unsafe-load"}


def test_names_with_escape_sequences_are_made_fit_to_be_shown(tmp_path):
    (tmp_path / "a\x1b[2Jb").write_bytes(made.call("os\x1b", "system", b"x") + made.call("os", "system", b"x"))
    assert "\x1b" not in scan(tmp_path).output


def test_wrong_arguments_say_what_is_right(tmp_path):
    assert (scan().exit_code, scan(tmp_path / "missing").exit_code) == (2, 2)
    unknown = scan("--explain", "model-pickle-cal")
    assert unknown.exit_code == 2
    assert "model-pickle-call" in unknown.output


@pytest.mark.parametrize("rule", sorted(RULES))
def test_each_rule_is_explained(rule):
    result = scan("--explain", rule)
    assert result.exit_code == 0
    assert "instead:" in result.output


def test_tensors_of_a_poisoned_checkpoint_are_taken_out_and_nothing_runs(tmp_path):
    canary = tmp_path / "canary"
    base = torch.arange(24.0).reshape(4, 6)
    state = {
        "model": {
            "weight": torch.nn.Parameter(base),
            "view": base[1:3, ::2],
            "turned": base.t(),
            "half": torch.ones(3, dtype=torch.bfloat16),
        },
        "lists": [torch.tensor([1, 2]), torch.tensor(5, dtype=torch.int32)],
        "empty": torch.empty(0, 3),
        "step": 3,
        "bad": made.Payload(canary),
    }
    torch.save(state, tmp_path / "model.pt")
    result = scan(tmp_path / "model.pt", "--convert", tmp_path / "model.safetensors", "--json")
    document = json.loads(result.output)
    assert sorted(document["left_out"]) == ["bad", "step"]
    loaded = cordee.load(tmp_path / "model.safetensors")
    for name, tensor in (
        *((f"model.{key}", value) for key, value in state["model"].items()),
        ("lists.0", state["lists"][0]),
        ("empty", state["empty"]),
    ):
        assert torch.equal(loaded[name], tensor), name
    assert loaded["lists.1"].item() == 5
    assert not canary.exists()
    again = scan(tmp_path / "model.pt", "--convert", tmp_path / "model.safetensors")
    assert again.exit_code == 2
    assert "exists" in again.output


def test_what_holds_no_tensors_cannot_be_converted(tmp_path):
    (tmp_path / "a").write_bytes(pickle.dumps({"a": 1}))
    torch.save({"a": 1}, tmp_path / "b")
    huge = torch.ones(1).expand(1 << 30, 1 << 8)
    torch.save({"a": huge}, tmp_path / "c")
    for name in "abc":
        result = scan(tmp_path / name, "--convert", tmp_path / "out")
        assert result.exit_code != 0, name
        assert not (tmp_path / "out").exists()
        assert "cannot be taken out" in result.output


def test_every_rule_that_can_be_seen_is_explained():
    folder = Path(words.__file__).parent
    named = {
        rule
        for path in folder.rglob("*.py")
        for rule in re.findall(r'"((?:model|file|secret|package|image|advisories)-[a-z0-9-]+)"', path.read_text())
    }
    named |= {f"secret-{kind}" for kind in FORMS}
    assert named == RULES.keys()
    for rule in RULES:
        assert made.cordee("scan", "--explain", rule).output.count("\n") == 4


def test_a_name_cannot_write_a_line_of_its_own(tmp_path):
    (tmp_path / "a\nclean \x1b[2J.pkl").write_bytes(made.call("os", "system", b"x"))
    output = made.cordee("scan", tmp_path).output
    assert "\x1b" not in output
    assert not [line for line in output.splitlines() if line.startswith("clean")]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_streams_behind_streams_and_faults_at_the_end_hide_nothing(tmp_path, pack):
    poison = made.call("os", "system", b"x")
    (tmp_path / "behind").write_bytes(pack(b"") + pack(poison) + b"\0" * 8)
    (tmp_path / "cut").write_bytes(pack(poison + os.urandom(4000))[:-9])
    (tmp_path / "good").write_bytes(pack(pickle.dumps([1])))
    document = json.loads(made.cordee("scan", tmp_path, "--json").output)
    verdicts = {os.path.basename(one["path"]): one["severity"] for one in document["findings"]}
    assert verdicts.keys() == {"behind", "cut"}
    assert verdicts["behind"] == "block"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("import os; os.system('x')\n./lib\n", "model-pth-code"),
        ("import os; var = 'X'; os.environ.get(var) and __import__('_distutils_hack').add_shim();\n", None),
        ("import subprocess; subprocess.run(['x'])\n\ndef f(x):\n    return x\n", None),
        ('{"a": [{"_target_": "os.system"}]}', "model-config-target"),
        ('{"a": [{"_target_": "torch.optim.AdamW"}]}', None),
        ('<!DOCTYPE p [<!ENTITY x SYSTEM "file:///etc/passwd">]><p>&x;</p>', "model-xml-entity"),
    ],
)
def test_texts_that_run_are_known_and_others_are_not(tmp_path, text, rule):
    (tmp_path / "a").write_text(text)
    document = json.loads(made.cordee("scan", tmp_path, "--json").output)
    assert [one["rule"] for one in document["findings"]] == ([rule] if rule else [])


def test_what_is_named_and_cannot_be_looked_at_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    said = scan(tmp_path / "fifo")
    assert said.exit_code not in (0, 1)
    assert "it cannot be looked at" in said.output
