"""Data sets by name: the site's catalogue in the cluster profile, and the places that people write."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cordee.core.errors import EXIT_USAGE, DataError
from cordee.core.words import nearest
from cordee.job.profile import ClusterProfile, StorageTier
from cordee.job.shared_data import SharedDataset

STORES = ("s3://",)
_MOST_NAMES = 2000


class NoDataSet(DataError):
    """What was given is neither there nor a name."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True)
class Located:
    """Where a data set lies.

    Attributes:
        given: as it was written.
        place: an absolute path, or the address of an object store.
        name: in the site's catalogue, None where it is not meant.
        shared: what the catalogue says of it.
    """

    given: str
    place: str
    name: str | None = None
    shared: SharedDataset | None = None

    @property
    def remote(self) -> bool:
        """Whether it lies in an object store."""
        return "://" in self.place


def locate(given: str, profile: ClusterProfile, folder: Path | None = None, names: Collection[str] = ()) -> Located:
    """Return where a data set lies: a path that is there, an address, or the name of a shared one, looked for in this order.

    Args:
        given: as people write it; `~` and variables are filled in.
        folder: where relative paths begin; None: the working directory.
        names: what else could have been meant, for the message: the job document's.

    Raises:
        NoDataSet: it is none of them; the nearest names are said.
        DataError: whether it is there cannot be seen.
    """
    if "://" in given:
        if not given.startswith(STORES):
            raise DataError(
                "this kind of object store is not known",
                given=given,
                allowed=[f"{store}BUCKET/PREFIX" for store in STORES],
                next="most stores speak S3, too: give its s3:// address, and AWS_ENDPOINT_URL",
            )
        return Located(given, given.rstrip("/"))
    path = _filled(given, folder)
    if _is_there(path):
        return Located(given, path)
    if given in profile.datasets:
        return located(given, profile)
    near = _nearest(given, path, (*names, *profile.datasets))
    own = [f"{name} (of the job document)" for name in sorted(names)]
    raise NoDataSet(
        f"there is no data set {given!r}: neither a path nor a shared one of {profile.name}",
        given=path if os.sep in given else given,
        allowed=["a path", "an s3:// address", *own, *(f"{name} (shared)" for name in sorted(profile.datasets))],
        next=f"did you mean {near}?" if near else "correct the path; `cordee data list` shows the shared ones",
    )


def located(name: str, profile: ClusterProfile) -> Located:
    """Return where a shared data set of the site's catalogue lies."""
    shared = profile.datasets[name]
    place = shared.path if "://" in shared.path else _filled(shared.path, None)
    return Located(name, place, name, shared)


def known_as(place: str, profile: ClusterProfile) -> str | None:
    """Return the name in the site's catalogue of what lies at a place, None where it is not in it."""
    real = place if "://" in place else os.path.realpath(place)
    for name in profile.datasets:
        other = located(name, profile).place
        if real == (other if "://" in other else os.path.realpath(other)):
            return name
    return None


def tier_of(place: str, profile: ClusterProfile, named: str | None = None) -> tuple[str, StorageTier] | None:
    """Return the tier of the profile that a place lies on: the one named, else the one with the longest path above it."""
    if named is not None and named in profile.storage:
        return named, profile.storage[named]
    if "://" in place:
        return None
    return profile.tier_at(place)


def _is_there(path: str) -> bool:
    """Return whether there is something, or two files of tokens that are called by what their names begin with.

    Raises:
        DataError: this user may not look there.
    """
    for name in (path, f"{path}.idx"):
        try:
            os.lstat(name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise DataError(
                f"whether there is a data set cannot be seen: {error.strerror}",
                given=path,
                next="ask whoever keeps it for the right to read, or for the group that has it",
            ) from None
        return True
    return False


def _filled(given: str, folder: Path | None) -> str:
    path = os.path.expandvars(os.path.expanduser(given))
    return os.path.normpath(os.path.join(folder or os.getcwd(), path))


def _nearest(given: str, path: str, names: Collection[str]) -> str | None:
    """Return the name, or the entry of the nearest folder that is there, which is most like what was written."""
    near = nearest(given, names)
    if near:
        return near
    missing = path
    while not os.path.isdir(os.path.dirname(missing)):
        missing = os.path.dirname(missing)
    folder = os.path.dirname(missing)
    near = nearest(os.path.basename(missing), _names(folder))
    return os.path.join(folder, near) if near else None


def _names(folder: str) -> list[str]:
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) == _MOST_NAMES:
                    break
    except OSError:
        pass
    return names
