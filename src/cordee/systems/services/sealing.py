"""The secrets of a backup, encrypted with a passphrase: who has the backup's file alone has none of them."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets as randomness
from pathlib import Path
from typing import TYPE_CHECKING

from cordee.core.documents.config_paths import config_folder
from cordee.core.errors import UsageError
from cordee.runs.folder import write_atomically
from cordee.systems.services.instance import ServiceError, new_secret, read_private

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_SALT_BYTES = 16
# RFC 7914: 32 MiB and a tenth of a second for each guess.
_N, _R, _P = 1 << 15, 8, 1
_LEAST_CHARACTERS = 12


def own_passphrase_file() -> Path:
    """Return the file of this account's own passphrase."""
    return config_folder(os.environ) / "backup-passphrase"


def passphrase_of(given: Path | None, make: bool = False) -> bytes:
    """Return the passphrase that a file holds.

    Args:
        given: the file; None: this account's own.
        make: make this account's own where it is not there.

    Raises:
        UsageError: the passphrase is too short, or what encrypts by it is not installed.
        ServiceError: the file cannot be read, or others may read it.
    """
    _library()
    path = given or own_passphrase_file()
    if given is None and make and not path.exists():
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        write_atomically(path, new_secret(40) + "\n")
    found = read_private(path, "the passphrase", "name the file of the passphrase by --passphrase-file")
    if len(found) < _LEAST_CHARACTERS:
        allowed = f"at least {_LEAST_CHARACTERS} characters"
        raise UsageError("the passphrase is too short", given=str(path), allowed=allowed)
    return found.encode()


def sealed(data: bytes, passphrase: bytes) -> bytes:
    """Return data encrypted with a passphrase (scrypt, then Fernet: AES-128-CBC with HMAC-SHA256)."""
    salt = randomness.token_bytes(_SALT_BYTES)
    return salt + _fernet(passphrase, salt).encrypt(data)


def unsealed(data: bytes, passphrase: bytes) -> bytes:
    """Return what `sealed` was given.

    Raises:
        ServiceError: it was another passphrase, or the data have changed.
    """
    from cryptography.fernet import InvalidToken

    try:
        return _fernet(passphrase, data[:_SALT_BYTES]).decrypt(data[_SALT_BYTES:])
    except InvalidToken:
        text = "the secrets of the backup cannot be decrypted: another passphrase, or they are damaged"
        what = "name the file of the passphrase that it was written with by --passphrase-file, or the secrets themselves by --secrets DIR"
        raise ServiceError(text, next=what) from None


def _fernet(passphrase: bytes, salt: bytes) -> Fernet:
    key = hashlib.scrypt(passphrase, salt=salt, n=_N, r=_R, p=_P, maxmem=2 * 128 * _N * _R, dklen=32)
    return _library()(base64.urlsafe_b64encode(key))


def _library() -> type[Fernet]:
    try:
        from cryptography.fernet import Fernet
    except ImportError:
        what = "pip install 'cordee[backup]', or leave the secrets out: --no-secrets"
        raise UsageError("encrypting the secrets of a backup needs cryptography", next=what) from None
    return Fernet
