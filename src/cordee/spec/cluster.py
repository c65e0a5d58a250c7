"""Cluster profiles: what a site knows about itself."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from cordee.errors import DocumentError, UsageError
from cordee.spec.fields import Document, Duration, Size
from cordee.spec.faults import findings_of
from cordee.spec.toml_lines import error_line, find_line

LOCAL = "local"


class Partition(Document):
    """`[partitions.NAME]`: limits of one partition."""

    max_time: Duration | None = None
    max_nodes: int | None = None
    cores: int | None = None
    memory: Size | None = None
    gpus: int = 0
    gpu_model: str | None = None
    default: bool = False


class GpuModel(Document):
    """`[gpus.MODEL]`: what one GPU can do."""

    memory: Size
    capability: float | None = None
    tflops_bf16: float | None = None
    bandwidth: Size | None = None


class StorageTier(Document):
    """`[storage.NAME]`: a place for data."""

    path: str
    kind: Literal["memory", "node", "shared"] = "shared"
    size: Size | None = None
    bandwidth: Size | None = None
    quota_files: int | None = None
    purge: Duration | None = None


class JobClass(Document):
    """`[classes.NAME]`: a length of job that the site favours."""

    max_time: Duration
    partition: str | None = None
    qos: str | None = None


class ClusterProfile(Document):
    """A whole cluster profile."""

    name: str = LOCAL
    scheduler: Literal["local", "slurm", "htcondor"] = "local"
    cores: int | None = None
    memory: Size | None = None
    gpus: int = 0
    python: str | None = None
    runs: str | None = None
    network_interface: str | None = None
    requeue: Literal["requeue", "resubmit", "forbidden"] = "requeue"
    partitions: dict[str, Partition] = {}
    classes: dict[str, JobClass] = {}
    gpu_models: dict[str, GpuModel] = Field(default={}, alias="gpu")
    storage: dict[str, StorageTier] = {}
    switches: dict[str, str] = {}
    defaults: dict[str, Any] = {}


def profile_folders() -> list[Path]:
    """Return the folders of profiles, the site's before the user's; `CORDEE_CLUSTERS_PATH` replaces them."""
    given = os.environ.get("CORDEE_CLUSTERS_PATH")
    if given:
        return [Path(part) for part in given.split(os.pathsep) if part]
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [Path("/etc/cordee/clusters"), config / "cordee" / "clusters"]


def list_clusters() -> list[str]:
    """Return the names of all clusters that have a profile, `local` first."""
    names = {path.stem for folder in profile_folders() if folder.is_dir() for path in folder.glob("*.toml")}
    return [LOCAL, *sorted(names - {LOCAL})]


def load_cluster(name: str) -> ClusterProfile:
    """Return a cluster's profile: the site's values, with the user's over them.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: a profile is wrong; all its faults are in `findings`.
    """
    known = list_clusters()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise UsageError(
            f"there is no cluster {name!r}",
            given=name,
            allowed=known,
            next=f"did you mean {near[0]!r}?" if near else f"write {profile_folders()[-1] / (name + '.toml')}",
        )
    merged: dict[str, Any] = _this_machine() if name == LOCAL else {}
    last: tuple[Path, str] | None = None
    for folder in profile_folders():
        path = folder / f"{name}.toml"
        if path.is_file():
            text, document = read_toml(path)
            merged.update(document)
            last = (path, text)
    merged.setdefault("name", name)
    try:
        return ClusterProfile.model_validate(merged)
    except ValidationError as error:
        path, text = last or (Path(name), "")
        found = findings_of(error, ClusterProfile, lambda keys: (str(path), find_line(text, keys)))
        first = found[0]
        raise DocumentError(
            first.text, findings=found, file=first.file, line=first.line, given=first.given, allowed=first.allowed, next=first.next
        ) from None


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return a TOML file's text and content.

    Raises:
        DocumentError: it is missing, unreadable, too large, not UTF-8 or not TOML.
    """
    try:
        if path.stat().st_size > 1 << 20:
            raise DocumentError("the document is larger than 1 MiB", file=str(path), allowed="a TOML document")
        text = path.read_bytes().decode()
        return text, tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise DocumentError(
            "the document is not UTF-8", file=str(path), given=f"byte {error.start}", allowed="UTF-8 text", next="save it as UTF-8"
        ) from None
    except tomllib.TOMLDecodeError as error:
        line = error_line(str(error), text)
        given = text.split("\n")[line - 1].strip() if text else ""
        raise DocumentError(
            f"not valid TOML: {str(error).split(' (at')[0]}", file=str(path), line=line, given=given, allowed="TOML 1.0"
        ) from None
    except OSError as error:
        raise DocumentError(
            f"cannot read the document: {error.strerror}", file=str(path), given=str(path), allowed="a readable TOML file"
        ) from None


def _this_machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) or len(list(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/mem_banks/0")))
    return {"name": LOCAL, "cores": len(os.sched_getaffinity(0)), "memory": memory, "gpus": gpus}
