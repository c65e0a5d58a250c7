"""Signatures by a person's login (sigstore without keys), checked offline by a site's trusted root; sigstore's own library decides."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from cordee.core.errors import UsageError

_KINDS = {
    "certificateAuthorities": "authority",
    "ctlogs": "certificate log",
    "tlogs": "transparency log",
}
_HOW = "certificate, its entry in the certificate log, the signature's entry in the transparency log and its time"


class LoginSigner(NamedTuple):
    """Who may sign, as a certificate names him: an address of mail or of a workflow, and who has looked at the login."""

    who: str
    issuer: str


class TrustedLogins(NamedTuple):
    """By which signatures without keys are checked.

    Attributes:
        roots: trusted roots of sigstore, each with the name of its file.
        signers: who may have signed.
    """

    roots: list[tuple[str, Any]]
    signers: list[LoginSigner]


def login_signers(texts: Iterable[str]) -> list[LoginSigner]:
    """Return those who may sign, each from a text `WHO ISSUER`.

    Raises:
        UsageError: one is none.
    """
    signers = []
    for text in texts:
        words = text.split()
        if len(words) != 2 or "://" not in words[1]:
            raise UsageError(
                "this names nobody who may sign",
                given=text,
                allowed="WHO ISSUER, such as release@acme.org https://accounts.google.com",
            )
        signers.append(LoginSigner(*words))
    return signers


def trusted_root(file: str, data: bytes) -> dict[str, Any]:
    """Return a trusted root of sigstore, as its document has it.

    Args:
        file: it comes from.
        data: of the file, JSON.

    Raises:
        UsageError: it is none, or the library is missing.
    """
    try:
        from sigstore.models import TrustedRoot  # noqa: F401
    except ImportError:
        raise UsageError(
            "signatures by a login are checked by the library `sigstore`, which is not installed",
            next="install it: pip install 'cordee[keyless]'",
        ) from None
    try:
        root: dict[str, Any] = json.loads(data)
        _counted(root, None)
    except Exception as error:  # the library raises whatever a document makes it meet
        raise UsageError(
            f"it is no trusted root of sigstore: {str(error)[:200]}",
            given=file,
            next="ask who signs for `trusted_root.json`, or take it once from sigstore's TUF repository",
        ) from None
    return root


def _counted(root: dict[str, Any], then: datetime | None) -> Any:
    """Return the library's form of a trusted root, with the authorities and logs that counted at a time; None: with all.

    The library leaves those out that have ended of time-stamps only: an authority that was given up would go on naming signers.

    Raises:
        ValueError: none of a kind counted then.
    """
    from sigstore.models import TrustedRoot
    from sigstore_models.trustroot.v1 import TrustedRoot as RootData

    if then is not None:
        for kind, said in _KINDS.items():
            there = [one for one in root[kind] if _was_valid(one.get("publicKey", one).get("validFor", {}), then)]
            if not there:
                raise ValueError(f"it names no {said} for the time of the certificate, {then:%Y-%m-%d %H:%M} UTC")
            root = {**root, kind: there}
    return TrustedRoot(RootData.from_json(json.dumps(root)))


def _was_valid(period: dict[str, str], then: datetime) -> bool:
    begin, end = (period.get(name) for name in ("start", "end"))
    return not (begin and then < datetime.fromisoformat(begin)) and not (end and then > datetime.fromisoformat(end))


def verified_by_login(document: Any, trusted: TrustedLogins) -> tuple[Any, str]:
    """Return the statement of a bundle that somebody whom we trust has signed, and in words who, and what was checked.

    Args:
        document: the signature's.
        trusted: by what it is checked, at least one of each.

    Raises:
        ValueError: nobody of those has signed it; it says why.
    """
    from sigstore.models import Bundle
    from sigstore.verify import Verifier, policy

    faults: dict[str, None] = {}
    for file, root in trusted.roots:
        for (who, issuer), issued in itertools.product(trusted.signers, (policy.OIDCIssuerV2, policy.OIDCIssuer)):
            try:
                bundle = Bundle.from_json(json.dumps(document))
                then = bundle.signing_certificate.not_valid_before_utc
                may = policy.AllOf([policy.Identity(identity=who), issued(issuer)])
                kind, payload = Verifier(trusted_root=_counted(root, then)).verify_dsse(bundle, may)
                if kind != "application/vnd.in-toto+json":
                    raise ValueError(f"it holds {kind!r} and no in-toto statement")
                return json.loads(payload), f"{who}, whose login {issuer} has seen (by {file}: {_HOW})"
            except Exception as error:  # whatever it is: this one has not signed it
                faults[f"{file}: {str(error)[:300] or repr(error)}"] = None
    raise ValueError("; ".join(list(faults)[:3]))
