"""Signatures by a login are checked offline by a trusted root and a list of who may sign; nothing less is taken for enough."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import socket
import sys
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.systems.scan.signatures import signature_verdict, trusted_keys

from . import made_files as made
from .made_logins import ISSUER, Sigstore

WHO = "release@example.org"
SIGNER = f"{WHO} {ISSUER}"
SIGNED = Path(__file__).parent / "signed" / "by_key"


@pytest.fixture(scope="module")
def sigstore():
    return Sigstore()


@pytest.fixture
def model(tmp_path, sigstore):
    """A folder whose statement somebody has signed by his login."""
    folder = tmp_path / "model"
    shutil.copytree(SIGNED, folder)
    envelope = json.loads((folder / "model.sig").read_text())["dsseEnvelope"]
    write(folder, sigstore.bundle(base64.b64decode(envelope["payload"]), WHO))
    sigstore.write_root(tmp_path / "trusted_root.json")
    return folder


def write(folder, bundle):
    (folder / "model.sig").write_text(json.dumps(bundle))


def read(folder):
    return json.loads((folder / "model.sig").read_text())


def looked_at(folder, *signers):
    root = folder.parent / "trusted_root.json"
    verdict, said = signature_verdict(folder / "model.sig", trusted_keys([root], signers or [SIGNER]))
    return [(sight.rule, sight.text) for sight in verdict.sights], said


def test_a_signature_by_a_login_is_confirmed_without_a_network(model, monkeypatch):
    monkeypatch.setattr(socket, "socket", None)
    sights, said = looked_at(model, f"other@example.org {ISSUER}", SIGNER)
    assert sights == []
    assert f"signed by {WHO}, whose login {ISSUER} has seen" in said
    assert "transparency log" in said
    (model / "config.json").write_text("other")
    assert [rule for rule, _ in looked_at(model)[0]] == ["signature-file-changed"]


def test_the_command_says_what_was_checked(model):
    found = made.cordee("scan", model, "--key", model.parent / "trusted_root.json", "--signer", SIGNER)
    assert found.exit_code == 0, found.output
    assert "its entry in the certificate log" in found.output
    refused = made.cordee("scan", model, "--key", model.parent / "trusted_root.json", "--signer", f"x@y.org {ISSUER}")
    assert refused.exit_code == 1
    assert "by nobody whom you trust" in refused.output


def other_signature(bundle, sigstore):
    signature = bundle["dsseEnvelope"]["signatures"][0]
    signature["sig"] = sigstore.bundle(b"{}", WHO)["dsseEnvelope"]["signatures"][0]["sig"]


def no_entry(bundle, sigstore):
    other = sigstore.bundle(b"{}", WHO)["verificationMaterial"]["tlogEntries"]
    bundle["verificationMaterial"]["tlogEntries"] = other


def no_promise(bundle, sigstore):  # then nothing tells when it was signed
    del bundle["verificationMaterial"]["tlogEntries"][0]["inclusionPromise"]


def later(bundle, sigstore):
    bundle["verificationMaterial"]["tlogEntries"][0]["integratedTime"] = "2000000000"


def other_proof(bundle, sigstore):
    bundle["verificationMaterial"]["tlogEntries"][0]["inclusionProof"]["rootHash"] = "A" * 43 + "="


def other_statement(bundle, sigstore):
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(payload.replace(b'"model"', b'"mordl"')).decode()


def broken_certificate(bundle, sigstore):
    bundle["verificationMaterial"]["certificate"]["rawBytes"] = "AAAA"


def of_another_sigstore(bundle, sigstore):
    bundle["verificationMaterial"] = Sigstore().bundle(b"{}", WHO)["verificationMaterial"]


def other_digest(bundle, sigstore):
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    statement["predicate"]["resources"][0]["digest"] = "0" * 64
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()


CHANGES = [
    other_signature,
    no_entry,
    no_promise,
    later,
    other_proof,
    other_statement,
    other_digest,
    broken_certificate,
    of_another_sigstore,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whatever_is_changed_is_not_trusted(model, sigstore, change):
    bundle = read(model)
    change(bundle, sigstore)
    write(model, bundle)
    verdict, _ = signature_verdict(model / "model.sig", trusted_keys([model.parent / "trusted_root.json"], [SIGNER]))
    assert verdict.verdict == "block"
    assert verdict.sights[0].rule == "signature-not-trusted"


@pytest.mark.parametrize("kind", ["certificateAuthorities", "ctlogs", "tlogs"])
def test_what_had_been_given_up_before_names_nobody(model, kind):
    path = model.parent / "trusted_root.json"
    root = json.loads(path.read_text())
    for one in root[kind]:
        one.get("publicKey", one)["validFor"]["end"] = "2026-01-01T00:00:00.999Z"
        one.get("publicKey", one)["validFor"]["start"] = "2021-01-01T00:00:00Z"
    path.write_text(json.dumps(root))
    ((rule, said),) = looked_at(model)[0]
    assert rule == "signature-not-trusted"
    assert "for the time of the certificate" in said


def test_of_a_signed_file_what_lies_beside_it_says_nothing(tmp_path, sigstore):
    weights = tmp_path / "model" / "weights.gguf"
    weights.parent.mkdir()
    weights.write_bytes(b"weights")
    (weights.parent / "README.md").write_text("by hand")
    sigstore.write_root(tmp_path / "trusted_root.json")
    digest = hashlib.sha256(b"weights").hexdigest()
    whole = hashlib.sha256(bytes.fromhex(digest)).hexdigest()
    serialization = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
    resources = [{"name": ".", "algorithm": "sha256", "digest": digest}]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": weights.name, "digest": {"sha256": whole}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": serialization, "resources": resources},
    }
    write(weights.parent, sigstore.bundle(json.dumps(statement).encode(), WHO))
    assert looked_at(weights.parent)[0] == []
    weights.write_bytes(b"others")
    assert [rule for rule, _ in looked_at(weights.parent)[0]] == ["signature-file-changed"]
    weights.unlink()
    assert [rule for rule, _ in looked_at(weights.parent)[0]] == ["signature-file-missing"]


@pytest.mark.parametrize("signer", [f"other@example.org {ISSUER}", f"{WHO} https://login.example.com"])
def test_who_is_not_named_with_his_issuer_is_not_trusted(model, signer):
    ((rule, said),) = looked_at(model, signer)[0]
    assert rule == "signature-not-trusted"
    assert "by nobody whom you trust" in said


def test_a_root_needs_signers_and_they_a_root(model):
    root = model.parent / "trusted_root.json"
    with pytest.raises(UsageError, match="nobody who may sign"):
        trusted_keys([root])
    with pytest.raises(UsageError, match="no trusted root"):
        trusted_keys([], [SIGNER])
    for text in ("", WHO, f"{WHO} by {ISSUER}", f"{WHO} example.org"):
        with pytest.raises(UsageError, match="nobody who may sign"):
            trusted_keys([root], [text])
    for text in ("{", "{}", '{"mediaType": 7}'):
        root.write_text(text)
        with pytest.raises(UsageError, match="no trusted root"):
            trusted_keys([root], [SIGNER])


def test_without_the_library_it_is_said_what_to_install(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sigstore.models", None)
    with pytest.raises(UsageError, match="`sigstore`") as raised:
        trusted_keys([model.parent / "trusted_root.json"], [SIGNER])
    assert "cordee[keyless]" in raised.value.next
