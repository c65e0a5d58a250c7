"""Cluster profiles: what a site knows about itself."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from cordee.errors import UsageError
from cordee.spec.faults import Place, document_error, findings_of
from cordee.spec.fields import Count, CountOrZero, Document, Duration, Name, Size
from cordee.spec.files import config_folder, read_toml
from cordee.spec.machine import this_machine
from cordee.spec.merge import Merge, Origin
from cordee.spec.toml_lines import Keys, find_line

LOCAL = "local"
SITE_FOLDER = Path("/etc/cordee/clusters")


class Partition(Document):
    """`[partitions.NAME]`: limits of one partition."""

    max_time: Duration | None = None
    max_nodes: Count | None = None
    cores: Count | None = None
    memory: Size | None = None
    gpus: CountOrZero = 0
    gpu_model: str | None = None
    default: bool = False


class GpuModel(Document):
    """`[gpu.MODEL]`: what one GPU can do; `tflops_bf16` dense, `bandwidth` of its memory per second, `power` in W."""

    memory: Size
    capability: Annotated[float, Field(gt=0)] | None = None
    tflops_bf16: Annotated[float, Field(gt=0)] | None = None
    bandwidth: Size | None = None
    power: Annotated[float, Field(gt=0)] | None = None


class StorageTier(Document):
    """`[storage.NAME]`: a place for data; `bandwidth` per second, quotas of one person."""

    path: str
    kind: Literal["memory", "node", "shared"] = "shared"
    size: Size | None = None
    bandwidth: Size | None = None
    quota_files: Count | None = None
    quota: Size | None = None
    purge: Duration | None = None


class JobClass(Document):
    """`[classes.NAME]`: a length of job that the site favours."""

    max_time: Duration
    partition: str | None = None
    qos: str | None = None


class ClusterProfile(Document):
    """A whole cluster profile; `switches` names the nodes below each switch, `defaults` is laid under every job."""

    name: Name = LOCAL
    scheduler: Literal["local", "slurm", "htcondor"] = "local"
    cores: Count | None = None
    memory: Size | None = None
    gpus: CountOrZero = 0
    python: str | None = None
    runs: str | None = None
    network_interface: str | None = None
    requeue: Literal["requeue", "resubmit", "forbidden"] = "requeue"
    partitions: dict[Name, Partition] = Field(default_factory=dict)
    classes: dict[Name, JobClass] = Field(default_factory=dict)
    gpu_models: dict[str, GpuModel] = Field(default_factory=dict, alias="gpu")
    storage: dict[Name, StorageTier] = Field(default_factory=dict)
    switches: dict[str, str] = Field(default_factory=dict)
    defaults: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class ProfileFile:
    """One file of a profile: the site's or the person's."""

    kind: str
    path: Path
    text: str
    document: dict[str, Any]

    def origin(self, keys: Keys) -> Origin:
        """Return where a path of keys of the document was given."""
        return Origin(self.kind, str(self.path), find_line(self.text, keys))


def profile_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the folders of profiles, the site's before the user's; `CORDEE_CLUSTERS_PATH` replaces them."""
    given = environ.get("CORDEE_CLUSTERS_PATH")
    if given:
        return [Path(part) for part in given.split(os.pathsep) if part]
    return [SITE_FOLDER, config_folder(environ) / "clusters"]


def list_clusters(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of all clusters that have a profile, `local` first."""
    names: set[str] = set()
    for folder in profile_folders(environ):
        try:
            names.update(name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml"))
        except OSError:
            continue
    return [LOCAL, *sorted(names - {LOCAL})]


def profile_files(name: str, environ: Mapping[str, str] = os.environ) -> list[ProfileFile]:
    """Return the files of a cluster's profile, the weakest first; none for a built-in cluster without files.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: one of them cannot be read.
    """
    folders = profile_folders(environ)
    known = list_clusters(environ)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"write {folders[-1] / 'NAME.toml'} for it, or use --on local"
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

    Raises:
        UsageError: no cluster has this name.
        DocumentError: a profile is wrong; all its faults are in `findings`.
    """
    files = profile_files(name, environ)
    merge = Merge()
    merge.add({"name": name}, lambda keys: Origin("default"))
    if name == LOCAL:
        merge.add(this_machine(), lambda keys: Origin("this machine"))
    for file in files:
        merge.add(file.document, file.origin)
    last = files[-1] if files else None
    try:
        return ClusterProfile.model_validate(merge.values)
    except ValidationError as error:
        fallback = Place(str(last.path), 1) if last else Place()
        raise document_error(findings_of(error, ClusterProfile, merge.values, lambda keys: merge.place(keys, fallback)))
