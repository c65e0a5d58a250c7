"""Token sets in an object store: the index is copied to this machine, the tokens are read by ranges."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from cordee.data.read.remote import NotThere, Objects, local_copy
from cordee.data.read.token_index import TokenIndex, check_size, only_set, read_token_index, unreadable


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
        except NotThere:
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
