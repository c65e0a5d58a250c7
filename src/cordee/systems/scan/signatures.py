"""Signatures of models in the format of the OpenSSF (OMS): `model.sig`, a sigstore bundle with an in-toto statement on all files of a folder.

They are checked offline, by public keys, certificates or trusted roots (see `keyless`) that one has. Source: github.com/sigstore/model-transparency, docs of version 1.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from cordee.core.errors import UsageError
from cordee.core.words import counted
from cordee.machine.foreign_files import read_json, regular
from cordee.systems.scan.keyless import TrustedLogins, login_signers, trusted_root, verified_by_login
from cordee.systems.scan.node.verdict import FileVerdict, Sight, worst

FILE = "model.sig"
_PAYLOAD, _PREDICATE = "application/vnd.in-toto+json", "https://model_signing/signature/v1.0"
_HASHES: dict[str, Any] = {"sha256": hashlib.sha256, "blake2b": hashlib.blake2b}
_CURVE_HASHES = {256: "SHA256", 384: "SHA384", 521: "SHA512"}
_LONGEST_CHAIN, _MOST_NAMED, _LARGEST_BYTES = 5, 5, 64 << 20


class TrustedKeys(NamedTuple):
    """By which signatures are checked.

    Attributes:
        keys: public keys, each with what it is called.
        authorities: certificates that may issue those of signers.
        logins: of people whose login somebody else has seen.
    """

    keys: list[tuple[str, Any]]
    authorities: list[Any]
    logins: TrustedLogins


def trusted_keys(files: Iterable[str | Path], signers: Iterable[str] = ()) -> TrustedKeys:
    """Return the public keys and certificates in PEM files, and the trusted roots in JSON files.

    Args:
        files: that hold them.
        signers: who may sign by a login, each `WHO ISSUER`.

    Raises:
        UsageError: one cannot be read, or holds none of them; a library is missing; a trusted root has no signers, or they no root.
    """
    trusted = TrustedKeys([], [], TrustedLogins([], login_signers(signers)))
    for file in files:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.serialization import load_pem_public_key

            with open(regular(os.path.expanduser(file)), "rb") as opened:
                data = opened.read(1 << 20)
            if data.lstrip().startswith(b"{"):
                trusted.logins.roots.append((os.path.basename(file), trusted_root(str(file), data)))
            elif b"BEGIN CERTIFICATE" in data:
                trusted.authorities.extend(x509.load_pem_x509_certificates(data))
            else:
                trusted.keys.append((os.path.basename(file), load_pem_public_key(data)))
        except ImportError:
            raise UsageError(
                "signatures are checked by the library `cryptography`, which is not installed",
                next="install it: pip install 'cordee[signatures]'",
            ) from None
        except (OSError, ValueError) as error:
            allowed = "a public key or certificates in PEM, or a trusted root of sigstore (JSON)"
            raise UsageError(f"no key can be read: {error}", given=str(file), allowed=allowed) from None
    if bool(trusted.logins.roots) != bool(trusted.logins.signers):
        there, missing = (
            ("a trusted root", "nobody who may sign") if trusted.logins.roots else ("signers", "no trusted root")
        )
        raise UsageError(
            f"{there} and {missing} was named: a login is checked by both",
            next='name trusted_root.json by `--key` or [scan] keys, and who may sign by `--signer "WHO ISSUER"` or [scan] signers',
        )
    return trusted


def signature_verdict(path: Path, trusted: TrustedKeys) -> tuple[FileVerdict, str]:
    """Return what is to be said of a `model.sig` and of the folder that it lies in, and in one sentence what was checked.

    Args:
        path: of the signature.
        trusted: keys; without any it is only checked that the files are those of the statement.
    """
    sights: list[Sight] = []
    try:
        bundle = read_json(path, limit_bytes=_LARGEST_BYTES)
        statement, signer, fault = _signed(bundle, trusted)
        if fault is not None:
            sights.append(fault)
        resources, ignored, algorithm = _resources(statement)
        sights += _differences(path, resources, ignored, algorithm)
        said = f"{path.parent}: {counted(len(resources), 'file')} as signed" + (f" by {signer}" if signer else "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        sights.append(
            Sight("signature-broken", "unknown", f"its signature cannot be read: {str(error)[:200] or repr(error)}")
        )
        said = ""
    verdict = worst(sight.severity for sight in sights)
    return FileVerdict(str(path), verdict, ("signature",), tuple(sights)), said if verdict in ("clean", "warn") else ""


def _signed(bundle: Any, trusted: TrustedKeys) -> tuple[Any, str, Sight | None]:
    """Return the statement, who has signed it, and what is wrong with that."""
    envelope, material = bundle["dsseEnvelope"], bundle["verificationMaterial"]
    payload = base64.b64decode(envelope["payload"], validate=True)
    signature = base64.b64decode(envelope["signatures"][0]["sig"], validate=True)
    if envelope["payloadType"] != _PAYLOAD:
        raise ValueError(f"it holds {envelope['payloadType']!r} and no in-toto statement")
    statement = json.loads(payload)
    signed = b"DSSEv1 %d %s %d %s" % (len(_PAYLOAD), _PAYLOAD.encode(), len(payload), payload)
    if not trusted.keys and not trusted.authorities and not trusted.logins.roots:
        return (
            statement,
            "",
            Sight("signature-unchecked", "warn", "it is signed, and no key was given to check by whom"),
        )
    candidates = list(trusted.keys)
    if "x509CertificateChain" in material:
        candidates = list(_of_certificates(material["x509CertificateChain"]["certificates"], trusted.authorities))
    for name, key in candidates:
        if _fits(key, signature, signed):
            return statement, name, None
    said = "none of your keys has signed it, or the statement was changed"
    if "certificate" in material and material.get("tlogEntries"):
        said = "it is signed by a person's login (sigstore without keys), and by none of your keys; logins are checked where `trusted_root.json` is among the keys, and [scan] signers says who may sign"
        if trusted.logins.roots:
            try:
                return *verified_by_login(bundle, trusted.logins), None
            except ValueError as error:
                said = f"it is signed by a person's login, and by nobody whom you trust: {error}"
    return statement, "", Sight("signature-not-trusted", "block", said)


def _of_certificates(certificates: Sequence[Any], authorities: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the signer's key if one of the authorities has issued its certificate, by others in between or at once."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    chain = [x509.load_der_x509_certificate(base64.b64decode(one["rawBytes"])) for one in certificates[:_LONGEST_CHAIN]]
    leaf, subject = chain[0], chain[0]
    if not _may(leaf, x509.KeyUsage, lambda usage: usage.digital_signature):
        return
    for _ in range(_LONGEST_CHAIN):
        for issuer in [*authorities, *chain[1:]]:
            try:
                subject.verify_directly_issued_by(issuer)
            except (InvalidSignature, ValueError, TypeError):
                continue
            if not _may(issuer, x509.BasicConstraints, lambda basic: basic.ca, without=False):
                continue
            if not issuer.not_valid_before_utc <= leaf.not_valid_before_utc <= issuer.not_valid_after_utc:
                continue
            if issuer in authorities:
                yield leaf.subject.rfc4514_string(), leaf.public_key()
                return
            subject = issuer
            break
        else:
            return


def _may(certificate: Any, kind: Any, asked: Any, *, without: bool = True) -> bool:
    from cryptography import x509

    try:
        return bool(asked(certificate.extensions.get_extension_for_class(kind).value))
    except x509.ExtensionNotFound:
        return without


def _fits(key: Any, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, signed)
        elif isinstance(key, ec.EllipticCurvePublicKey) and key.curve.key_size in _CURVE_HASHES:
            key.verify(signature, signed, ec.ECDSA(getattr(hashes, _CURVE_HASHES[key.curve.key_size])()))
        else:
            return False
    except InvalidSignature:
        return False
    return True


def _resources(statement: Any) -> tuple[dict[str, str], tuple[str, ...], str]:
    """Return the digests that a statement has by name, what it leaves out, and by what they were made.

    Of a single file (`.`) the name is that of the statement's subject; `""` then leaves out whatever lies beside it.
    """
    if statement["predicateType"] != _PREDICATE:
        raise ValueError(f"its statement is {statement['predicateType']!r}")
    predicate = statement["predicate"]
    serialization = predicate["serialization"]
    algorithm = str(serialization.get("hash_type", "sha256"))
    if serialization["method"] != "files" or algorithm not in _HASHES:
        raise ValueError(
            f"it was made by {serialization['method']!r} with {algorithm!r}: files with {sorted(_HASHES)} are known"
        )
    resources: dict[str, str] = {}
    together = hashlib.sha256()
    for one in predicate["resources"]:
        name = PurePosixPath(one["name"])
        if name.is_absolute() or ".." in name.parts or str(name) in resources:
            raise ValueError(f"it names {one['name']!r}")
        resources[str(name)] = str(one["digest"])
        together.update(bytes.fromhex(one["digest"]))
    if together.hexdigest() != statement["subject"][0]["digest"]["sha256"]:
        raise ValueError("its digests are not those of its subject")
    if list(resources) == ["."]:
        return {PurePosixPath(statement["subject"][0]["name"]).name: resources["."]}, ("",), algorithm
    return resources, tuple(map(str, serialization.get("ignore_paths") or ())), algorithm


def _differences(path: Path, resources: dict[str, str], ignored: Sequence[str], algorithm: str) -> Iterator[Sight]:
    """Yield how a folder differs from what was signed."""
    folder, left = path.parent, dict(resources)
    changed, extra = [], []
    for name in filter(resources.get, os.listdir(folder)) if "" in ignored else _names(folder, path, ignored):
        digest = left.pop(name, None)
        if digest is None:
            extra.append(name)
        elif _digest(folder / name, algorithm) != digest:
            changed.append(name)
    for rule, severity, names, said in (
        ("signature-file-changed", "block", changed, "was changed after it was signed"),
        ("signature-file-missing", "block", sorted(left), "was signed, and is not there"),
        ("signature-file-extra", "block", extra, "is there, and was not signed"),
    ):
        for name in names[:_MOST_NAMED]:
            more = (
                f" (and {len(names) - _MOST_NAMED} more)"
                if len(names) > _MOST_NAMED and name == names[_MOST_NAMED - 1]
                else ""
            )
            yield Sight(rule, severity, f"{name} {said}{more}", name)


def _names(folder: Path, signature: Path, ignored: Sequence[str]) -> Iterator[str]:
    for below, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(below, name))]
        folders.sort()
        for name in sorted([*files, *links]):
            there = PurePosixPath(os.path.relpath(os.path.join(below, name), folder))
            if folder / there != signature and not any(there.is_relative_to(one) for one in ignored):
                yield str(there)


def _digest(path: Path, algorithm: str) -> str:
    try:
        with open(regular(path), "rb") as file:
            return hashlib.file_digest(file, _HASHES[algorithm]).hexdigest()
    except OSError as error:
        return f"it cannot be read: {error}"
