"""Where data sets lie: folders and S3-compatible object stores, behind one small seam."""

from __future__ import annotations

import os

from cordee.core.errors import UsageError
from cordee.wire.stores._base import ObjectStore, Stored
from cordee.wire.stores.patience import Patience

__all__ = ["Patience", "ObjectStore", "Stored", "is_remote", "open_store"]


def is_remote(address: str | os.PathLike[str]) -> bool:
    """Return whether an address is a store's and no path: `s3://bucket/prefix`."""
    return "://" in os.fspath(address)


def open_store(address: str | os.PathLike[str], patience: Patience | None = None) -> ObjectStore:
    """Open a folder, or `s3://bucket[/prefix]`; asks nothing yet.

    Credentials, region and endpoint of S3 come from the usual AWS_* variables.

    Raises:
        UsageError: the address is of another kind, or names no bucket.
        DataError: the endpoint cannot be used as it is given; the extra `s3` is not installed.
    """
    text = os.fspath(address)
    scheme, separator, rest = text.partition("://")
    if not separator:
        from cordee.wire.stores.local import LocalStore

        return LocalStore(text)
    if scheme in ("s3", "s3a") and rest.strip("/"):
        from cordee.wire.stores.s3 import S3Store

        return S3Store("s3://" + rest.strip("/"), patience or Patience.from_environment())
    raise UsageError(
        "this address of a store cannot be used",
        given=text,
        allowed="a path, or s3://bucket/prefix",
        next="S3-compatible stores of a centre: s3://, with their address in AWS_ENDPOINT_URL",
    )
