"""The site's shared data sets as this user finds them."""

from __future__ import annotations

import grp
import os
from dataclasses import asdict, dataclass
from typing import Any

from cordee.job.profile import ClusterProfile
from cordee.systems.data.catalogue import located, tier_of
from cordee.systems.data.listing import look


@dataclass(frozen=True)
class SharedDataSet:
    """One shared data set.

    Attributes:
        readable: by this user; None: not looked at, as it lies in an object store.
        member: whether this user is in `group`; None where none is named.
        fault: why it cannot be used, empty where it can.
    """

    name: str
    path: str
    kind: str
    samples: int | None
    bytes: int | None
    readable: bool | None
    member: bool | None
    fault: str
    tier: str | None
    licence: str | None
    group: str | None
    about: str | None
    source: str | None

    def document(self) -> dict[str, Any]:
        """Return the JSON-ready dict."""
        return asdict(self)


def shared_datasets(profile: ClusterProfile) -> list[SharedDataSet]:
    """Return every data set of the catalogue by name, each after a bounded look; bytes only where all of them were seen."""
    return [_found(name, profile) for name in sorted(profile.datasets)]


def _found(name: str, profile: ClusterProfile) -> SharedDataSet:
    where = located(name, profile)
    shared = profile.datasets[name]
    seen, tier = look(where.place), tier_of(where.place, profile, shared.tier)
    fault = seen.fault if where.remote else _unreadable(where.place) or seen.fault
    return SharedDataSet(
        name=name,
        path=where.place,
        kind=seen.kind,
        samples=seen.samples if seen.samples is not None else shared.samples,
        bytes=seen.bytes if seen.whole else None,
        readable=None if where.remote else not fault,
        member=is_member(shared.group) if shared.group else None,
        fault=fault,
        tier=tier[0] if tier else shared.tier,
        licence=shared.licence,
        group=shared.group,
        about=shared.about,
        source=shared.source,
    )


def _unreadable(place: str) -> str:
    if os.path.exists(place) and not may_read(place):
        return "you may not read it"
    return ""


def may_read(place: str) -> bool:
    """Return whether this user may read a file, or list and enter a folder."""
    return os.access(place, os.R_OK | (os.X_OK if os.path.isdir(place) else 0))


def is_member(group: str) -> bool:
    """Return whether this process belongs to a Unix group; False where there is none of this name."""
    try:
        return grp.getgrnam(group).gr_gid in {os.getegid(), *os.getgroups()}
    except KeyError:
        return False
