"""Token sets opened: from files, or from an object store, whose index is copied to this machine and whose tokens are read by ranges."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Optional

from cordee.machine.foreign_files import regular
from cordee.systems.data.node.read.remote import ObjectMissing, Objects, local_copy
from cordee.systems.data.node.read.tokens.index import (
    Path,
    TokenIndex,
    check_size,
    find_token_set,
    only_set,
    read_token_index,
    unreadable,
)

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


def find_remote_set(address: str) -> Optional[str]:
    """Return the address of a token set without its endings, None where none is.

    Args:
        address: of its `.bin` or `.idx`, without the ending, or of a folder that holds one set.

    Raises:
        DataError: the folder holds several, or the store did not answer.
    """
    given = address.rstrip("/")
    if given.endswith((".bin", ".idx")):
        given = given[:-4]
    folder, _, name = given.rpartition("/")
    if not folder.endswith("/"):  # else it is the bucket
        try:
            Objects(folder).size(name + ".idx")
        except ObjectMissing:
            pass
        else:
            return given
    return only_set(given, Objects(given).names())


def open_remote_index(address: str) -> TokenIndex:
    """Read the index of a token set in an object store and compare it with its `.bin`.

    Raises:
        DataError, CorruptDataError: as `open_token_index`.
    """
    found = find_remote_set(address)
    if found is None:
        raise unreadable("there is no token set", address)
    folder, _, name = found.rpartition("/")
    objects = Objects(folder)
    copy = local_copy(objects, name + ".idx")
    with open(copy, "rb") as file:
        index = replace(read_token_index(file, found), copy=copy)
    check_size(index, objects.size(name + ".bin")[0])
    return index


def open_token_index(path: Path) -> TokenIndex:
    """Read an `.idx` as a whole and compare it with its `.bin`.

    Args:
        path: as `find_token_set` takes it, or an `s3://` address of any of these.

    Raises:
        DataError: there is no token set, or it cannot be read.
        CorruptDataError: the index is damaged or cut off, of another version, or of another `.bin`.
    """
    if os.fspath(path).startswith("s3://"):
        return open_remote_index(os.fspath(path))
    found = find_token_set(path)
    if found is None:
        raise unreadable("there is no token set", os.fspath(path))
    try:
        with open(found + ".idx", "rb", opener=regular) as file:
            index = read_token_index(file, found)
        size = os.stat(index.bin_path).st_size
    except OSError as error:
        raise unreadable(f"the token set cannot be read: {error.strerror}", error.filename or found) from None
    check_size(index, size)
    return index
