"""The data sets of a job: where they lie, what a bounded look at them shows, and what is wrong with that."""

from __future__ import annotations

import grp
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from cordee.core.backends import abilities
from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.core.units import format_duration, format_size
from cordee.job.command import script_of
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan import model
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.examine.storage import local_kind
from cordee.job.profile import StorageTier
from cordee.job.scripts import read_script
from cordee.machine.node_tiers import MEMORY_SHARE
from cordee.runs.folder import RunFolder, write_atomically
from cordee.systems.data.catalogue import Located, known_as, locate, located, tier_of
from cordee.systems.data.last_use import last_use
from cordee.systems.data.listing import DataLook, look
from cordee.systems.data.listing_store import look_in_store
from cordee.systems.data.node.read.variables import data_variable
from cordee.systems.data.node.shards.index import INDEX_NAME
from cordee.systems.data.node.stage.tier import MEMORY_BYTES
from cordee.systems.data.shared import is_member, may_read

SMALL_BYTES = 1 << 20
MANY_FILES = 1000
_SOON_S = 7 * 86400.0
# Of which each file stands for itself.
_PARTED = ("files", "shards", "parquet", "hdf5", "object store")


class DataExamination(Examination):
    """Where the data sets of a job lie."""

    field = "data"

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        """Bring each data set's place into a variable, and before the eyes of ranks in a container."""
        planned, findings = plan_data(self.loaded, self.run_folder.parent)
        places = tuple(shown_of(one) for one in planned) if self.loaded.job.environment else ()
        return Contribution(planned, findings, places, {one.variable: one.place for one in planned})


def shown_of(data: model.DataSet) -> ShownPaths:
    """Return the paths of the host that hold a data set: its own, and where its shards lie; none for an object store."""
    return ShownPaths(f"the data set {data.name}", f"data.{data.name}.from", tuple(_places(data)))


def _places(data: model.DataSet) -> list[str]:
    if "://" in data.place:
        return []
    place = data.place if os.path.exists(data.place) else os.path.dirname(data.place)
    elsewhere = look(data.place).elsewhere if data.kind == "packed" else None
    if elsewhere is None and data.kind == "packed" and os.path.isfile(place):
        place = os.path.dirname(place)
    return [place, *([elsewhere] if elsewhere is not None and "://" not in elsewhere else [])]


def keep_data(folder: RunFolder, loaded: LoadedJob, plan: model.Plan) -> tuple[str, ...]:
    """Keep what was found of the data sets; they are no code, wherever they lie."""
    if plan.step.data:
        data = {"schema": "cordee.data/1", "data": [one.model_dump(mode="json") for one in plan.step.data]}
        write_atomically(folder.documents / "data.json", json.dumps(data, indent=1))
    return tuple(one.place for one in plan.step.data if "://" not in one.place)


def plan_data(loaded: LoadedJob, runs: Path) -> tuple[tuple[model.DataSet, ...], list[Finding]]:
    """Return the data sets of a job as they were found, and what is worth saying of them.

    Args:
        runs: where runs lie, of which the last ones say how their data was used.

    One that cannot be had is left out: then one of the findings is an error.
    """
    saying = JobFindings(loaded)
    planned: dict[str, model.DataSet] = {}
    for name, given in loaded.job.data.items():
        key, variable = f"data.{name}", data_variable(name)
        if variable in planned:
            other = planned[variable].name
            text = f"{name} and {other} would both be {variable}"
            allowed = "names that differ in more than capitals and signs"
            saying.error(key, "bad-value", text, given=name, allowed=allowed, next="rename one of them")
            continue
        try:
            found = locate(given.source, loaded.cluster, loaded.folder)
        except CordeeError as error:
            if not _on_the_nodes_alone(loaded, given.source, key, saying):
                saying.error(
                    f"{key}.from", "no-data-set", error.text, given=error.given, allowed=error.allowed, next=error.next
                )
                continue
            found = Located(given.source, given.source)
        one = _Examined(loaded, name, found, saying, runs)
        if one.readable():
            one.say()
            planned[variable] = one.planned()
    return tuple(planned.values()), saying.findings


def _on_the_nodes_alone(loaded: LoadedJob, source: str, key: str, saying: JobFindings) -> bool:
    """Return whether a path that is not here lies on a tier that every node has for itself; then that is said."""
    tier = tier_of(source, loaded.cluster) if os.path.isabs(source) else None
    if tier is None or tier[1].kind == "shared" or not abilities(loaded.cluster.scheduler).several_machines:
        return False
    text = f"whether the nodes have it cannot be seen from here: {tier[0]} is each node's own"
    saying.warn(f"{key}.from", "data-on-nodes", text, given=source, next="put it there in `setup`, on every node")
    return True


class _Examined:
    """One data set that was located, looked at once."""

    def __init__(self, loaded: LoadedJob, name: str, found: Located, saying: JobFindings, runs: Path) -> None:
        self._runs = runs
        self._loaded, self._name, self._found, self._saying = loaded, name, found, saying
        self._key, self._to = f"data.{name}.from", loaded.job.data[name].to
        self._part = loaded.job.data[name].part == "node"
        self._tier = tier_of(found.place, loaded.cluster, found.shared.tier if found.shared else None)
        self._look = self._looked()

    def _looked(self) -> DataLook:
        place = self._found.place
        if not self._found.remote:
            return look(place) if _is_here(place) else DataLook("unknown", whole=False)
        try:
            return look_in_store(place)
        except CordeeError as error:
            text = f"whether the data set {self._name} is there cannot be seen from here: {error.text}"
            self._saying.warn(self._key, "data-unseen", text, given=error.given, next=error.next)
            return DataLook("object store", whole=False)

    def planned(self) -> model.DataSet:
        """Return what the plan keeps."""
        seen, shared = self._look, self._found.shared
        tier = self._tier[1] if self._tier else None
        known = self._found.name or known_as(self._found.place, self._loaded.cluster)
        shared = shared or (self._loaded.cluster.datasets[known] if known else None)
        return model.DataSet(
            name=self._name,
            given=self._found.given,
            place=self._found.place,
            variable=data_variable(self._name),
            to=self._to,
            kind=seen.kind,
            files=seen.files,
            bytes=seen.bytes if seen.whole else None,
            whole=seen.whole,
            samples=seen.samples if seen.samples is not None or shared is None else shared.samples,
            identity=seen.identity,
            shared=known,
            licence=shared.licence if shared else None,
            group=shared.group if shared else None,
            tier=self._tier[0] if self._tier else None,
            bandwidth_bytes_per_s=tier.bandwidth if tier and tier.kind == "shared" else None,
            node_bandwidth_bytes_per_s=_node_bandwidth(tier) if tier else None,
            stage=self._staging(),
        )

    def _staging(self) -> model.DataStaging | None:
        """Return how it is brought to the nodes, if it is; and say what `auto` decided, and what memory it takes."""
        prepare = self._loaded.job.data[self._name].prepare
        if prepare is not None and self._to not in ("memory", "node"):
            key, text = f"data.{self._name}.prepare", f"{self._name} is not prepared where it is read in place"
            what = 'write to = "node" or "memory" beside it'
            self._saying.error(key, "bad-value", text, given=self._to, allowed=["memory", "node"], next=what)
        self._judge_part()
        if self._to == "shared":
            return None
        why_not = self._not_staged()
        if why_not and self._to == "auto":
            self._saying.info(f"data.{self._name}.to", "data-in-place", f"{self._name} is read in place: {why_not}")
            return None
        if why_not:
            self._saying.error(
                f"data.{self._name}.to",
                "not-staged",
                f"{self._name} cannot be brought to the nodes: {why_not}",
                given=self._to,
                allowed="shared",
                next='write to = "shared", or leave it out',
            )
            return None
        size = self._look.bytes if self._look.whole else None
        named = f"{self._name} ({format_size(size)})" if size is not None else self._name
        memory = self._loaded.job.need.memory
        if self._part and size is not None:
            size = -(-size // self._loaded.job.need.nodes)
        if self._to == "memory" and size is not None and memory is not None and size > MEMORY_SHARE * memory:
            self._saying.error(
                f"data.{self._name}.to",
                "memory-too-small",
                f"{named} does not fit into the memory of a node beside the training: it counts as the job's",
                given=f"need.memory {format_size(memory)}",
                allowed=f"at least {format_size(int(size / MEMORY_SHARE))}",
                next='ask for more memory, or write to = "node" or "auto"',
            )
        self._saying.info(f"data.{self._name}.to", "data-staged", f"{named} is brought to {self._where(size)}")
        return model.DataStaging(tiers=self._loaded.cluster.node_places, prepare=prepare or (), part=self._part)

    def _judge_part(self) -> None:
        """Refuse parts of what ranks need whole on each node."""
        if not self._part:
            return
        script = script_of(self._loaded.job.run)
        calls = read_script(self._loaded.folder / script, self._loaded.folder).calls if script else ()
        nodes = self._loaded.job.need.nodes
        if self._to not in ("memory", "node"):
            why = "it is read in place"
        elif self._look.kind not in _PARTED:
            why = f"it is of the kind {self._look.kind}, and no folder of files that stand for themselves"
        elif "cordee.dataset" in calls:
            why = "the script calls cordee.dataset, whose order goes over all samples"
        elif self._look.whole and (self._look.files or 0) < nodes:
            why = f"it has {self._look.files} files, and there are {nodes} nodes"
        else:
            return
        key, text = f"data.{self._name}.part", f"{self._name} cannot be parted among the nodes: {why}"
        what = 'leave out part; or write to = "node" beside it, where the script itself reads the files that lie on its node'
        self._saying.error(key, "bad-value", text, given="node", allowed="all", next=what)

    def _not_staged(self) -> str:
        """Return why it is no use, or not possible, to bring it to the nodes; empty: it is."""
        own = self._tier is not None and self._tier[1].kind != "shared"
        if self._look.elsewhere is not None:
            return "its shards lie elsewhere than its index"
        if self._to != "auto":
            return ""
        used = last_use(self._runs, self._found.place)
        against = used.against_staging() if used is not None else ""
        if against or self._found.remote:
            return against
        here = (
            None if abilities(self._loaded.cluster.scheduler).several_machines else local_kind(Path(self._found.place))
        )
        return "it lies on the nodes' own storage" if own or here is not None else ""

    def _where(self, size: int | None) -> str:
        counts = "what lies there counts as the job's memory"
        if self._to == "memory":
            return f"the memory of each node before the ranks start; {counts}"
        if self._to == "node":
            return "a disk of each node before the ranks start"
        if size is not None and size > MEMORY_BYTES:
            return f"a disk of each node where it fits, as it is over the {format_size(MEMORY_BYTES)} that centres put into memory; else it is read in place"
        known = "" if size is not None else f" if it has at most {format_size(MEMORY_BYTES)}"
        return f"the memory of each node{known} where it fits ({counts}), else to its disk, else it is read in place"

    def readable(self) -> bool:
        """Return whether this user can read it; if not, that is an error."""
        place, shared = self._found.place, self._found.shared
        if not self._found.remote and not _is_here(place):
            return True
        fault = self._look.fault
        if self._look.kind == "nothing":
            what = "correct the address; the store that was asked is the one in AWS_ENDPOINT_URL, or AWS"
            self._saying.error(self._key, "no-data-set", f"there is no data set: {fault}", given=place, next=what)
            return False
        if os.path.exists(place) and not may_read(place):
            fault = "you may not read it"
        if not fault:
            return True
        rule = "data-unusable" if self._look.kind == "packed" else "data-unreadable"
        what = "`cordee data verify` says what is damaged" if rule == "data-unusable" else "ask whoever keeps it"
        if shared is not None and shared.group and not is_member(shared.group):
            what = f"ask to become a member of the group {shared.group}"
        self._saying.error(
            self._key, rule, f"the data set {self._name} cannot be used: {fault}", given=place, next=what
        )
        return False

    def say(self) -> None:
        """Say everything that is worth knowing before it is read."""
        self._say_travel()
        self._say_kind()
        self._say_copy()
        self._say_place()
        self._say_purge()
        self._say_group()

    def _say_kind(self) -> None:
        seen, place = self._look, self._found.place
        if seen.kind == "empty" or seen.samples == 0:
            what = "files" if seen.kind == "empty" else "samples"
            self._saying.warn(self._key, "data-empty", f"the data set {self._name} has no {what}", given=place)
        if seen.kind == "archive":
            text = f"the data set {self._name} is one archive: samples cannot be taken from it in any order"
            what = f"`cordee data pack {place} --to FOLDER` makes shards of it, unless the script reads archives"
            if self._found.remote:
                what = (
                    "copy it here and pack the copy: `cordee data pack` makes shards, unless the script reads archives"
                )
            self._saying.info(self._key, "data-archive", text, given=place, next=what)
        if seen.kind == "shards":
            text = f"the data set {self._name} is tar shards without an index: samples cannot be taken in any order"
            what = f"`cordee data pack --index-only {place}` makes {INDEX_NAME} beside them, and copies nothing"
            self._saying.warn(self._key, "no-index", text, given=place, next=what)
        mean = seen.mean_bytes
        if seen.kind != "files" or mean is None or mean >= SMALL_BYTES or (seen.files or 0) < MANY_FILES:
            return
        if not self._shared_tier():
            return
        count = f"{seen.files:,}{'' if seen.whole else ' and more'}"
        text = (
            f"the data set {self._name} is {count} files of {format_size(mean)} in the mean on shared storage: "
            "every epoch opens each of them"
        )
        what = f"`cordee data survey {place}` says what that costs, `cordee data pack {place} --to FOLDER` ends it"
        self._saying.warn(self._key, "small-files", text, given=place, next=what)

    def _shared_tier(self) -> bool:
        """Return whether it lies where others feel it: on a tier that is said to be shared, else on any cluster."""
        if self._tier is not None:
            return self._tier[1].kind == "shared"
        return abilities(self._loaded.cluster.scheduler).several_machines

    def _say_travel(self) -> None:
        """Say what travels with the run to machines that see no files of these, and refuse what cannot."""
        cluster = self._loaded.cluster
        if self._found.remote or abilities(cluster.scheduler).shares_files:
            return
        if self._look.elsewhere is not None:
            what = "name the folder that holds the shards beside their index, or an address of an object store"
            text = f"the shards of {self._name} lie elsewhere than its index, and one folder travels to {cluster.name}"
            self._saying.error(self._key, "not-honoured", text, given=self._look.elsewhere, next=what)
            return
        size = format_size(self._look.bytes) if self._look.bytes is not None and self._look.whole else "its files"
        text = f"{self._name} ({size}) travels to {cluster.name} whenever the run starts there"
        self._saying.info(self._key, "data-travels", text, given=self._found.place)

    def _say_copy(self) -> None:
        """Say that the site keeps the same, where this is another place."""
        cluster, place = self._loaded.cluster, self._found.place
        if known_as(place, cluster) is not None:
            return
        for name, shared in cluster.datasets.items():
            identity = self._look.identity
            same = identity is not None and look(located(name, cluster).place).identity == identity
            if not same and name not in (self._name, os.path.basename(place)):
                continue
            how = "this very data set" if same else "a data set of this name"
            text = f"{cluster.name} keeps {how} for all, and {self._name} is read from elsewhere"
            if shared.licence:
                text += f" (its licence: {shared.licence})"
            what = (
                f'from = "{name if self._found.given != name else shared.path}" reads the shared one: no copy is needed'
            )
            self._saying.info(self._key, "shared-data-set", text, given=place, allowed=shared.path, next=what)
            return

    def _say_place(self) -> None:
        cluster, place = self._loaded.cluster, self._found.place
        if self._found.remote or not cluster.nodes_elsewhere or not abilities(cluster.scheduler).shares_files:
            return  # where machines share no files, it travels
        own = self._tier is not None and self._tier[1].kind != "shared"
        kind = f"the tier {self._tier[0]}" if own and self._tier else local_kind(Path(place))
        if kind is not None and _is_here(place):
            self._saying.warn(
                self._key,
                "local-data",
                f"the data set {self._name} lies on this machine's own storage ({kind}), and {cluster.name} has nodes on other "
                "machines, which do not see it",
                given=place,
                allowed="a place on a file system that all nodes share, or an s3:// address",
                next="move it to shared storage",
            )

    def _say_purge(self) -> None:
        purge = self._tier[1].purge if self._tier else None
        if purge is None or self._look.unused_since is None:
            return
        assert self._tier is not None
        left = self._look.unused_since + purge - time.time()
        if left > max(_SOON_S, self._loaded.job.need.time or 0):
            return
        when = f"in {format_duration(left)}" if left > 0 else "at any time"
        self._saying.warn(
            self._key,
            "purge-near",
            f"{self._tier[0]} removes what was not used for {format_duration(purge)}: the oldest files of {self._name} go {when}",
            given=self._found.place,
            next="keep a copy on storage that is not purged; packed shards are few files that are used together",
        )

    def _say_group(self) -> None:
        """Say that a shared data set is not open to the group that the catalogue names."""
        shared, place = self._found.shared, self._found.place
        if shared is None or shared.group is None or self._found.remote:
            return
        status = os.stat(place)
        wanted = 0o050 if os.path.isdir(place) else 0o040
        if status.st_mode & (wanted >> 3) == wanted >> 3:
            return
        try:
            group = grp.getgrgid(status.st_gid).gr_name
        except KeyError:
            group = str(status.st_gid)
        if group != shared.group or status.st_mode & wanted != wanted:
            text = f"the shared data set {self._found.name} is for the group {shared.group}, which cannot read it"
            given = f"{place}: group {group}, mode {status.st_mode & 0o777:04o}"
            what = "tell those who keep the catalogue: chgrp and chmod g+rX"
            self._saying.warn(self._key, "group-unreadable", text, given=given, next=what)


def _node_bandwidth(tier: StorageTier) -> int | None:
    """Return what one node gets of a tier: as it says, or all of what is the node's own."""
    return tier.node_bandwidth or (tier.bandwidth if tier.kind != "shared" else None)


def _is_here(place: str) -> bool:
    return os.path.exists(place) or os.path.exists(f"{place}.idx")
