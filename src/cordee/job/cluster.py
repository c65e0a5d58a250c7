"""Cluster profiles: what a site knows about itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cordee.core.backends import BUILT_IN, HERE, backend
from cordee.core.documents.config_paths import profile_folders, profile_names
from cordee.core.documents.faults import ValuePlace, validated
from cordee.core.documents.files import read_toml
from cordee.core.documents.merge import Merge, ValueOrigin
from cordee.core.documents.toml_lines import Keys, find_line
from cordee.core.errors import CordeeError, SubmitError, UsageError
from cordee.core.parts import load
from cordee.core.words import did_you_mean
from cordee.job.machine import this_machine
from cordee.job.profile import SHAPE_KEYS, ClusterProfile

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class ProfileFile:
    """One file of a profile: the site's or the person's."""

    kind: str
    path: Path
    text: str
    document: dict[str, Any]

    def origin(self, keys: Keys) -> ValueOrigin:
        """Return where a path of keys of the document was given."""
        return ValueOrigin(self.kind, str(self.path), find_line(self.text, keys))


def list_clusters(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of all clusters: `local`, those that have a profile, and `slurm` where one answers."""
    names = profile_names(environ)
    names |= {name for name in BUILT_IN if name not in names and _said(name, environ) is not None}
    return [HERE, *sorted(names - {HERE})]


def profile_files(name: str, environ: Mapping[str, str] = os.environ) -> list[ProfileFile]:
    """Return the files of a cluster's profile, the weakest first; none for a built-in cluster without files.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: one of them cannot be read.
    """
    folders = profile_folders(environ)
    if name not in {*BUILT_IN, *profile_names(environ)}:
        known = list_clusters(environ)
        hint = did_you_mean(name, known, f"write {folders[-1] / 'NAME.toml'} for it, or use --on {HERE}")
        raise UsageError(f"there is no cluster {name}", given=name, allowed=known, next=hint)
    files = []
    for index, folder in enumerate(folders):
        path = folder / f"{name}.toml"
        if path.exists():
            kind = "user profile" if index and index == len(folders) - 1 else "site profile"
            files.append(ProfileFile(kind, path, *read_toml(path)))
    return files


def load_cluster(name: str, environ: Mapping[str, str] = os.environ) -> ClusterProfile:
    """Return a cluster's profile: the site's values, with the user's over them.

    Under a profile for Slurm lies what the Slurm that answers here says of itself, unless the profile names another
    `slurm_cluster`; the cluster `slurm` needs no file.

    Raises:
        UsageError: no cluster has this name, or it is `slurm`, has no file, and no Slurm answers.
        CordeeError: it is `slurm`, has no file, and its controller was busy for a minute.
        DocumentError: a profile is wrong; all its faults are in `findings`.
    """
    files = profile_files(name, environ)
    merge = Merge()
    merge.add({"name": name}, lambda keys: ValueOrigin("default"))
    if name == HERE:
        merge.add(this_machine(), lambda keys: ValueOrigin("this machine"))
    scheduler, facts = _facts(name, files, environ)
    merge.add(facts, lambda keys: ValueOrigin(scheduler))
    for file in files:
        merge.add(file.document, file.origin)
        _lay_over_groups(merge.values.get("partitions"), file.document.get("partitions"))
    return _profile(merge.values, merge, files)


def read_tables(name: str, keys: Iterable[str], environ: Mapping[str, str] = os.environ) -> ClusterProfile:
    """Return what the profile of a cluster says in some of its tables; asks no scheduler, and fills in nothing else.

    Args:
        name: of the cluster.
        keys: of the profile.
        environ: where variables are read from.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: the profile is wrong there.
    """
    merge = Merge()
    files = profile_files(name, environ)
    for file in files:
        merge.add({key: file.document[key] for key in keys if key in file.document}, file.origin)
    return _profile({"name": name, **merge.values}, merge, files)


def _profile(values: dict[str, Any], merge: Merge, files: list[ProfileFile]) -> ClusterProfile:
    nearest = ValuePlace(str(files[-1].path), 1) if files else ValuePlace()
    return validated(ClusterProfile, values, lambda keys: merge.place(keys, nearest))


def _lay_over_groups(partitions: Any, given: Any) -> None:
    """Make what a file says of all nodes of a partition hold for the groups that lie under it."""
    for name, table in given.items() if isinstance(given, dict) and isinstance(partitions, dict) else ():
        groups = partitions[name].get("groups") if isinstance(table, dict) and "groups" not in table else None
        if isinstance(groups, list):
            over = {key: table[key] for key in SHAPE_KEYS if key in table}
            partitions[name]["groups"] = [{**group, **over} if isinstance(group, dict) else group for group in groups]


def _facts(name: str, files: list[ProfileFile], environ: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return the scheduler of a cluster, and what it says of itself, which lies under the cluster's files if it is that one."""
    given = {
        key: file.document[key] for file in files for key in ("scheduler", "slurm_cluster") if key in file.document
    }
    if name in BUILT_IN and name != HERE and not files:
        site = backend(name).site
        return name, load(site)(environ, _PATIENCE_S) if site else {"scheduler": name}
    scheduler = given.get("scheduler", name if name in BUILT_IN else HERE)
    if not isinstance(scheduler, str) or not _says(scheduler):
        return HERE, {}
    values = _said(scheduler, environ)
    if values is None:
        return scheduler, {"scheduler": scheduler}
    if given.get("slurm_cluster") not in (None, values.get("answering")):
        return scheduler, {"scheduler": scheduler, "answering": values.get("answering")}
    return scheduler, values


def _says(scheduler: str) -> str | None:
    """Return what asks a scheduler about itself; None where nothing does."""
    try:
        site: str | None = backend(scheduler).site
    except SubmitError:
        return None
    return site


def _said(scheduler: str, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what a scheduler says of itself at once, None when it says nothing."""
    site = _says(scheduler)
    try:
        return dict(load(site)(environ, 0.0)) if site else None
    except CordeeError:
        return None
