"""A sigstore of one's own: an authority, a certificate log and a transparency log, whose keys live as long as a test.

Forms: RFC 6962 (certificate log), github.com/sigstore/protobuf-specs (bundle, trusted root), github.com/transparency-dev/formats (checkpoint).
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ISSUER = "https://login.example.org"
PAYLOAD = "application/vnd.in-toto+json"
_SCTS = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ISSUER_V1 = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_SIGN = ec.ECDSA(hashes.SHA256())


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def der(key: Any) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


class Sigstore:
    """Signs statements for whoever says who he is, and writes the root by which that is checked."""

    def __init__(self) -> None:
        self.authority, self.certificate_log, self.log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        self.now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
        self._usage = {**usage, "encipher_only": False, "decipher_only": False}
        own = x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key())
        begun = x509.CertificateBuilder(name, name, self.authority.public_key(), 1, *self._days(-10, 3650))
        begun = begun.add_extension(x509.BasicConstraints(True, None), True).add_extension(own, False)
        signs = x509.KeyUsage(digital_signature=False, key_cert_sign=True, crl_sign=True, **self._usage)
        self.root = begun.add_extension(signs, True).sign(self.authority, hashes.SHA256())

    def _days(self, begin: float, end: float) -> tuple[datetime.datetime, datetime.datetime]:
        return self.now + datetime.timedelta(begin), self.now + datetime.timedelta(end)

    def certificate(self, key: Any, who: str) -> x509.Certificate:
        """Return the certificate of ten minutes that a login gets, entered in the certificate log."""
        issuer = x509.UnrecognizedExtension(_ISSUER_V1, ISSUER.encode())
        builder = x509.CertificateBuilder(
            self.root.subject, x509.Name([]), key.public_key(), x509.random_serial_number(), *self._days(-0.004, 0.003)
        )
        of_authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key())
        signs = x509.KeyUsage(digital_signature=True, key_cert_sign=False, crl_sign=False, **self._usage)
        for extension, critical in (
            (signs, True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), False),
            (of_authority, False),
            (x509.SubjectAlternativeName([x509.RFC822Name(who)]), True),
            (issuer, False),
        ):
            builder = builder.add_extension(extension, critical)
        before = builder.sign(self.authority, hashes.SHA256()).tbs_certificate_bytes
        at = int(self.now.timestamp() * 1000)
        entry = hashlib.sha256(der(self.authority)).digest() + len(before).to_bytes(3, "big") + before
        signed = struct.pack("!BBQH", 0, 0, at, 1) + entry + b"\0\0"
        signature = self.certificate_log.sign(signed, _SIGN)
        sct = struct.pack(
            "!B32sQHBBH", 0, hashlib.sha256(der(self.certificate_log)).digest(), at, 0, 4, 3, len(signature)
        )
        sct += signature
        listed = struct.pack("!HH", len(sct) + 2, len(sct)) + sct
        octets = b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else b"\x81" + bytes([len(listed)])) + listed
        return builder.add_extension(x509.UnrecognizedExtension(_SCTS, octets), False).sign(
            self.authority, hashes.SHA256()
        )

    def bundle(self, payload: bytes, who: str) -> dict[str, Any]:
        """Return the signature of a statement, entered in the transparency log."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certificate(key, who)
        signed = b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)
        envelope = {
            "payload": text(payload),
            "payloadType": PAYLOAD,
            "signatures": [{"sig": text(key.sign(signed, _SIGN))}],
        }
        pem = text(certificate.public_bytes(Encoding.PEM))
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(json.dumps(envelope).encode()).hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "signatures": [{"signature": envelope["signatures"][0]["sig"], "verifier": pem}],
        }
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": text(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [
                    self._entry(json.dumps({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec}).encode())
                ],
            },
            "dsseEnvelope": envelope,
        }

    def _entry(self, body: bytes) -> dict[str, Any]:
        log_id, at = hashlib.sha256(der(self.log)).digest(), int(self.now.timestamp())
        promise = {"body": text(body), "integratedTime": at, "logID": log_id.hex(), "logIndex": 0}
        promised = self.log.sign(json.dumps(promise, sort_keys=True, separators=(",", ":")).encode(), _SIGN)
        root = hashlib.sha256(b"\0" + body).digest()  # of a tree with one leaf
        note = f"log.example.org - 1\n1\n{text(root)}\n"
        checkpoint = f"{note}\n\u2014 log.example.org {text(log_id[:4] + self.log.sign(note.encode(), _SIGN))}\n"
        proof = {
            "logIndex": "0",
            "rootHash": text(root),
            "treeSize": "1",
            "hashes": [],
            "checkpoint": {"envelope": checkpoint},
        }
        return {
            "logIndex": "0",
            "logId": {"keyId": text(log_id)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(at),
            "inclusionPromise": {"signedEntryTimestamp": text(promised)},
            "inclusionProof": proof,
            "canonicalizedBody": text(body),
        }

    def write_root(self, path: Path) -> Path:
        """Write the trusted root."""
        since = {"start": (self.now - datetime.timedelta(10)).strftime("%Y-%m-%dT%H:%M:%SZ")}

        def log_of(key: Any) -> dict[str, Any]:
            public = {"rawBytes": text(der(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": since}
            return {
                "baseUrl": "https://log.example.org",
                "hashAlgorithm": "SHA2_256",
                "publicKey": public,
                "logId": {"keyId": text(hashlib.sha256(der(key)).digest())},
            }

        chain = {"certificates": [{"rawBytes": text(self.root.public_bytes(Encoding.DER))}]}
        about = {"organization": "tests", "commonName": "tests"}
        authority = {"subject": about, "uri": "https://ca.example.org", "certChain": chain, "validFor": since}
        root = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [log_of(self.log)],
            "ctlogs": [log_of(self.certificate_log)],
            "certificateAuthorities": [authority],
            "timestampAuthorities": [],
        }
        path.write_text(json.dumps(root))
        return path
