"""Who asks an object store, and whether unencrypted: what the environment says, for packing and for reading alike."""

from __future__ import annotations

import os
from collections.abc import Mapping

from cordee.core.errors import UsageError

_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_OF_STORES = ("AWS_", "CORDEE_STORE_")
_OWN_MACHINE = ("127.0.0.1", "localhost", "[::1]")


def access_of(env: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment says of its object store: what else asks there for a job must ask as its ranks would."""
    return {name: value for name, value in env.items() if name.startswith(_OF_STORES)}


def anonymous() -> bool:
    """Return whether only what everybody may read is asked for: the environment holds no credentials.

    Raises:
        UsageError: the key or its secret is missing; or a profile of ~/.aws is meant, whose files are not read: to ask as
            nobody would be refused unexplained.
    """
    if bool(os.environ.get("AWS_ACCESS_KEY_ID")) != bool(os.environ.get("AWS_SECRET_ACCESS_KEY")):
        raise UsageError(
            "one half of the store's credentials is missing",
            given="AWS_ACCESS_KEY_ID alone" if os.environ.get("AWS_ACCESS_KEY_ID") else "AWS_SECRET_ACCESS_KEY alone",
            allowed="both, or none: then only what everybody may read is asked for",
        )
    if any(os.environ.get(name) for name in _CREDENTIALS):
        return False
    profile = os.environ.get("AWS_PROFILE")
    if profile:
        raise UsageError(
            "profiles of ~/.aws are not read",
            given=f"AWS_PROFILE={profile}",
            allowed=f"credentials in the environment: {', '.join(_CREDENTIALS)}",
            next=f'eval "$(aws configure export-credentials --profile {profile} --format env)", '
            "or unset AWS_PROFILE to ask for what everybody may read",
        )
    return True


def http_allowed() -> bool:
    """Return whether requests may go unencrypted: to this machine, or where AWS_ALLOW_HTTP says so.

    Raises:
        UsageError: the store's address is not encrypted, and nobody has said that it may be.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    allowed = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes")
    if not endpoint.startswith("http://") or allowed:
        return allowed
    address = endpoint[len("http://") :].rpartition("@")[2].partition("/")[0]
    if address in _OWN_MACHINE or address.rpartition(":")[0] in _OWN_MACHINE:
        return True
    raise UsageError(
        "the address of the store is not encrypted",
        given=f"AWS_ENDPOINT_URL={endpoint.rpartition('@')[2]}",
        allowed="https://…, or http://… together with AWS_ALLOW_HTTP=true",
        next="ask whether the store has https; AWS_ALLOW_HTTP=true sends everything readable by others",
    )
