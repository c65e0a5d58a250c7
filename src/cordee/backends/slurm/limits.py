"""Limits of a QOS or an account, read from the parts of their names: `QOSMaxCpuPerUserLimit`, `AssocGrpGRES`."""

from __future__ import annotations

import re
from typing import NamedTuple

from cordee.backends.slurm.reasons import WaitReason, known_reason

_FAMILY = re.compile(
    r"(?:(?P<owner>Assoc(?:iation)?|QOS)(?P<kind>Grp|Max|Min)?|(?P<bare>Max))"
    r"(?P<what>SubmitJobs?|Jobs?|Wall(?:Duration)?|Time|Cpus?|Mem(?:ory)?|Nodes?|Gres|BB|Billing|Energy|License|Resource|Unk(?:nown)?)"
    r"(?P<spent>Run)?(?P<minutes>Minutes|Mins?)?(?P<per>Per(?:Job|User|Account|Node))?(?P<end>Limit|NotSatisfied)?",
    re.IGNORECASE,
)
_THINGS = {
    "submitjob": "jobs in the queue",
    "job": "running jobs",
    "wall": "running time",
    "wallduration": "running time",
    "time": "running time",
    "cpu": "cores",
    "mem": "memory",
    "memory": "memory",
    "node": "nodes",
    "gre": "GPUs or other devices",
    "bb": "burst buffer space",
    "billing": "billing units",
    "energy": "energy",
    "license": "licences",
    "resource": "resources",
}
_AMOUNTS = ("running time", "memory", "energy", "burst buffer space", "resource that its name does not say")
_WHOM = {
    "": "all its jobs together",
    "job": "a job",
    "node": "a job on one node",
    "user": "each person",
    "account": "each account",
}
_KEYS = {
    "running time": "time",
    "cores": "cpus_per_rank or nodes",
    "memory": "memory",
    "nodes": "nodes",
    "GPUs or other devices": "gpus_per_node or nodes",
}
_TRES_NAMES = {
    "cores": "cpu",
    "memory": "mem",
    "nodes": "node",
    "GPUs or other devices": "gres/gpu",
    "billing units": "billing",
    "energy": "energy",
}
MEMORY_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_SACCTMGR = {  # (kind, thing, per) to the columns of sacctmgr that hold the value
    ("max", "running jobs", "user"): ("MaxJobsPU", "MaxJobs"),
    ("max", "jobs in the queue", "user"): ("MaxSubmitPU", "MaxSubmit"),
    ("max", "running jobs", "account"): ("MaxJobsPA",),
    ("max", "jobs in the queue", "account"): ("MaxSubmitPA",),
    ("max", "running time", "job"): ("MaxWall",),
    ("grp", "running time", ""): ("GrpWall",),
    ("grp", "running jobs", ""): ("GrpJobs",),
    ("grp", "jobs in the queue", ""): ("GrpSubmit",),
}
_TRES = {
    ("grp", ""): ("GrpTRES",),
    ("grp", "minutes"): ("GrpTRESMins",),
    ("grp", "run minutes"): ("GrpTRESRunMins",),
    ("max", "job"): ("MaxTRES",),
    ("max", "job minutes"): ("MaxTRESMins",),
    ("max", "node"): ("MaxTRESPerNode",),
    ("max", "user"): ("MaxTRESPU",),
    ("max", "account"): ("MaxTRESPA",),
    ("min", "job"): ("MinTRES",),
}


class SlurmLimit(NamedTuple):
    """A limit by its parts.

    Attributes:
        owner: `QOS` or `account`.
        kind: grp (of all jobs together), max or min.
        thing: what is limited, in words; empty when the name does not say.
        per: job, user, account, node, or empty for all together.
        minutes: `minutes` (a budget that is used up), `run minutes` (what running jobs have reserved), or empty.
    """

    owner: str
    kind: str
    thing: str
    per: str
    minutes: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of `sacctmgr show qos|assoc` that hold its value."""
        tres = _TRES.get((self.kind, f"{self.per} {self.minutes}".strip()), ())
        return _SACCTMGR.get((self.kind, self.thing, self.per)) or tres

    @property
    def key(self) -> str | None:
        """The key of [need] that asks for it, None when no key does."""
        return _KEYS.get(self.thing)

    @property
    def tres(self) -> str:
        """Slurm's name of the thing in lists such as `cpu=4,mem=400M`, empty when it is none of them."""
        return _TRES_NAMES.get(self.thing, "")

    @property
    def is_budget(self) -> bool:
        """Whether it is used up over time and does not come back when jobs end."""
        return self.minutes == "minutes" or (self.kind == "grp" and self.thing == "running time")

    @property
    def frees_itself(self) -> bool:
        """Whether it is met again when other jobs end."""
        return not self.is_budget and (self.kind == "grp" or self.per in ("user", "account"))


def read_limit(name: str) -> SlurmLimit | None:
    """Return the limit that a reason's name stands for, None when it is none of this family."""
    found = _FAMILY.fullmatch(name.strip())
    if found is None or known_reason(name) is not None:
        return None
    thing = found["what"].lower().rstrip("s")
    per = (found["per"] or "")[3:].lower()
    kind = (found["kind"] or "max").lower()
    if kind != "grp" and not per:
        per = "user" if thing in ("job", "submitjob") else "job"
    minutes = "" if not found["minutes"] else ("run minutes" if found["spent"] else "minutes")
    owner = "account" if (found["owner"] or "").casefold().startswith("assoc") else "QOS"
    return SlurmLimit(owner, kind, _THINGS.get(thing, ""), per, minutes)


def read_tres(text: str) -> dict[str, float]:
    """Return `cpu=4,mem=400M,gres/gpu=3` as numbers by name; memory in bytes, a bare number of it is MiB."""
    found = {}
    for name, number, unit in re.findall(r"([\w/:.-]+)=([\d.]+)([KMGTP]?)", text):
        scale = MEMORY_UNITS[unit or "M"] if name == "mem" else 1
        found[name] = float(number) * scale
    return found


def explain_limit(limit: SlurmLimit) -> WaitReason:
    """Return what a limit means as a clause; `{qos}` and `{account}` stand for the job's own."""
    owner = "QOS {qos}" if limit.owner == "QOS" else "account {account}"
    thing = limit.thing or "resource that its name does not say"
    amount = thing if thing in _AMOUNTS else f"number of {thing}"
    if limit.kind == "min":
        return WaitReason(f"{owner} sets a least {amount} for a job", _ask(limit, "more"), "never")
    if limit.is_budget:
        meaning = f"the budget of {thing}{' times minutes' if limit.minutes else ''} of {owner} is used up or too small"
        return WaitReason(
            meaning, "use another [need] account or qos, ask for less time, or apply for more budget", "act"
        )
    if limit.minutes:
        return WaitReason(
            f"{owner} limits the {thing} times minutes that its running jobs have reserved",
            "wait until other jobs end, or ask for less [need] time",
            "turn",
        )
    meaning = f"{owner} limits the {amount} of {_WHOM[limit.per]}"
    if limit.frees_itself:
        return WaitReason(meaning, f"wait until other jobs end, or {_ask(limit, 'less')}", "turn")
    return WaitReason(meaning, _ask(limit, "less"), "never")


def _ask(limit: SlurmLimit, amount: str) -> str:
    other = "use another [need] qos" if limit.owner == "QOS" else "use another [need] account"
    return f"ask for {amount} with [need] {limit.key}, or {other}" if limit.key else other


def explain(name: str) -> WaitReason:
    """Return what any reason of Slurm means: by the table, by the parts of its name, or that it is not known."""
    known = known_reason(name)
    if known is not None:
        return known
    limit = read_limit(name)
    if limit is not None:
        return explain_limit(limit)
    if name.casefold().startswith(("qos", "assoc")):
        owner = "QOS {qos}" if name.casefold().startswith("qos") else "account {account}"
        return WaitReason(
            f"a limit of {owner} holds it back: {name}", "wait, or use another [need] qos or account", "act"
        )
    return WaitReason(f"Slurm says {name!r}", "ask the operators what it means at this site", "act")
