"""Where the description of a network comes from: a file, the cluster's profile, or the scheduler that answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cordee.backends.network.fabric import is_fabric, read_fabric
from cordee.backends.slurm.node.topology import read_topology
from cordee.backends.slurm.topology import read_topology_yaml
from cordee.core.backends import BUILT_IN, backend, is_known, known
from cordee.core.documents.config_paths import profile_folders, profile_names
from cordee.core.documents.texts import text_of
from cordee.core.draw.clean import one_line
from cordee.core.errors import CordeeError, UsageError
from cordee.core.network import Network, NetworkError, members_of, of_lists
from cordee.core.parts import load
from cordee.job.cluster import read_tables
from cordee.job.profile import ClusterProfile

_KEYS = ("scheduler", "switches", "network")
_LARGEST = 64 << 20
_ALLOWED = "a topology.conf, a topology.yaml, or what `scontrol show topology` or `ibnetdiscover` printed"


class MissingTopology(NamedTuple):
    """Data that is not there: what, which lines to add, and where."""

    what: str
    line: str
    where: str


class Found(NamedTuple):
    """The network, or what is missing of it."""

    network: Network | None
    missing: MissingTopology | None = None


def find_network(cluster: str, file: Path | None = None, environ: Mapping[str, str] = os.environ) -> Found:
    """Return the network of a cluster: by `file`, else by its profile, else as its scheduler says.

    Raises:
        NetworkError, DocumentError, UsageError: the file or the profile is wrong.
    """
    there = cluster in {*BUILT_IN, *profile_names(environ)}
    profile = read_tables(cluster, _KEYS, environ) if there else ClusterProfile()
    groups = profile.network.groups
    if file is not None:
        return Found(read_network(file))
    if profile.network.file:
        return Found(_grouped(read_network(Path(os.path.expandvars(profile.network.file)).expanduser()), groups))
    if profile.switches:
        members, malformed = members_of(profile.switches)
        faults = [f"[switches] {name}: {text.splitlines()[0]}" for name, text in malformed.items()]
        return Found(_grouped(of_lists(members, f"[switches] of cluster {cluster}", faults=faults), groups))
    unsaid = "scheduler" not in profile.model_fields_set
    scheduler = cluster if unsaid and cluster in BUILT_IN else profile.scheduler
    asked = f"cluster {cluster}"
    if is_known(scheduler) and (part := backend(scheduler).network):
        try:
            network = load(part)()
            if network is not None:
                return Found(_grouped(network, groups))
            asked = f"{scheduler} knows no switches or blocks of cluster {cluster}"
        except NetworkError as error:
            raise NetworkError(
                error.text, given=error.given, allowed=error.allowed, next="give a file with --topology"
            ) from error
        except CordeeError as error:
            asked = f"{scheduler} could not be asked: {one_line(error.text, 120)}"
    where = str(profile_folders(environ)[-1] / f"{cluster}.toml")
    line = '[network]\nfile = "/etc/slurm/topology.conf"\n\n# or:\n[switches]\nleaf1 = "n[1-16]"'
    return Found(None, MissingTopology(f"how the nodes are connected ({asked})", line, where))


def read_network(path: Path) -> Network:
    """Return the network that a file describes, in any form.

    Raises:
        NetworkError, DocumentError: it is missing, too large, or in none of the forms.
    """
    file = str(path)
    try:
        size = path.stat().st_size if path.is_file() else -1
        if size < 0:
            raise NetworkError("there is no such file", file=file, allowed=_ALLOWED, next="give another path")
        if size > _LARGEST:
            raise NetworkError("is too large", file=file, given=f"{size} bytes", allowed=f"at most {_LARGEST} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise NetworkError(
            f"cannot be read: {error.strerror}", file=file, allowed=_ALLOWED, next="make it readable"
        ) from None
    fabric = data.decode("utf-8", "replace")  # descriptions of adapters are any bytes
    if is_fabric(fabric):
        return read_fabric(fabric.splitlines(), file, file=file)
    text = text_of(data, file)
    if not text.strip():
        raise NetworkError("is empty", file=file, allowed=_ALLOWED, next="give another file")
    first = next(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    if path.suffix in (".yaml", ".yml") or first.lstrip().startswith(("- ", "---")):
        return read_topology_yaml(path)
    return read_topology(text, file, file=file)


def nodes_of_job(job: str) -> tuple[str, list[str]]:
    """Return the scheduler that knows a job, whoever submitted it, and the job's nodes.

    Raises:
        UsageError: no scheduler knows it, or it has no nodes yet.
        CordeeError: none could be asked.
    """
    trouble: CordeeError | None = None
    asked = []
    for name in known():
        part = backend(name).job_nodes
        if part is None:
            continue
        asked.append(name)
        try:
            nodes = load(part)(job)
        except CordeeError as error:
            trouble = error
        else:
            if nodes is not None:
                return name, nodes
    if trouble is not None:
        raise trouble
    text = "neither a run nor a job of a scheduler has this name, or the job has no nodes yet"
    raise UsageError(text, given=job, allowed=f"an id of a run, or of a job ({', '.join(asked)})")


def _grouped(network: Network, groups: Mapping[str, str]) -> Network:
    """Return the network of a dragonfly, where a profile names the groups of its switches."""
    if not groups:
        return network
    listed, wrong = members_of(groups)
    faults = [*network.faults, *(f"[network.groups] {name}: {text.splitlines()[0]}" for name, text in wrong.items())]
    source = f"{network.source} and [network.groups]"
    return of_lists(network.leaves, source, kind="dragonfly", groups=listed, faults=faults)
