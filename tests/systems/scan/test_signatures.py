"""Signed models are checked offline; `signed/` was made by the tool `model_signing` 1.x with keys that nobody has kept."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.systems.scan.signatures import signature_verdict, trusted_keys

from . import made_files as made

SIGNED = Path(__file__).parent / "signed"
BY = {"by_key": "key.pem", "by_certificate": "authority.pem"}


@pytest.fixture
def model(tmp_path):
    shutil.copytree(SIGNED / "by_key", tmp_path / "model")
    return tmp_path / "model"


def rules(folder, key="key.pem"):
    verdict, said = signature_verdict(folder / "model.sig", trusted_keys([SIGNED / key] if key else []))
    assert bool(said) == (verdict.verdict in ("clean", "warn"))
    return [sight.rule for sight in verdict.sights]


@pytest.mark.parametrize("how", BY)
def test_what_the_tool_has_signed_is_confirmed(how):
    assert rules(SIGNED / how, BY[how]) == []
    result = made.cordee("scan", SIGNED / how, "--key", SIGNED / BY[how])
    assert result.exit_code == 0
    assert "2 files as signed by" in result.output


@pytest.mark.parametrize("how", BY)
def test_another_key_confirms_nothing(how):
    other = next(name for name in BY if name != how)
    assert rules(SIGNED / how, BY[other]) == ["signature-not-trusted"]
    assert rules(SIGNED / how, None) == ["signature-unchecked"]


def test_changed_missing_and_further_files_are_told(model):
    (model / "sub" / "weights.txt").write_text("other")
    (model / "config.json").unlink()
    os.symlink("/etc", model / "link")
    (model / ".gitignore").write_text("not signed, as the statement says")
    assert rules(model) == ["signature-file-changed", "signature-file-missing", "signature-file-extra"]


def test_a_statement_that_was_changed_is_not_trusted(model):
    bundle = json.loads((model / "model.sig").read_text())
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(
        payload.replace(b'"name": "model"', b'"name": "mordl"')
    ).decode()
    (model / "model.sig").write_text(json.dumps(bundle))
    assert rules(model) == ["signature-not-trusted"]


def test_a_signature_by_login_takes_the_place_of_no_key(model):
    bundle = json.loads((model / "model.sig").read_text())
    bundle["verificationMaterial"] = {"certificate": {"rawBytes": ""}, "tlogEntries": [{}]}
    bundle["dsseEnvelope"]["signatures"][0]["sig"] = "AAAA"
    (model / "model.sig").write_text(json.dumps(bundle))
    assert rules(model) == ["signature-not-trusted"]
    assert rules(model, None) == ["signature-unchecked"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"dsseEnvelope": 7, "verificationMaterial": []}', "\0\xff", "[" * 100_000]
)
def test_a_broken_signature_is_unknown(model, text):
    (model / "model.sig").write_text(text)
    assert rules(model) == ["signature-broken"]


def test_keys_that_are_none_are_refused(tmp_path):
    (tmp_path / "no.pem").write_text("no key")
    for path in (tmp_path / "no.pem", tmp_path / "missing"):
        with pytest.raises(UsageError, match="no key can be read"):
            trusted_keys([path])


def test_a_job_with_a_model_that_was_changed_does_not_start(tmp_path, model, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "train.py").write_text("print(1)\n")
    text = f'name = "a"\nrun = "python train.py --model {{}}"\n[scan]\nkeys = ["{SIGNED}/key.pem"]\n'
    document = tmp_path / "cordee.toml"
    document.write_text(text.format(model))
    assert made.cordee("check", tmp_path, "--runs", tmp_path / "runs").exit_code == 0
    (model / "config.json").write_text("{}")
    result = made.cordee("check", tmp_path, "--runs", tmp_path / "runs")
    assert result.exit_code == 2
    assert "changed after it was signed" in result.output
