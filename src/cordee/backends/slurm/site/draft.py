"""The text of a drafted cluster profile: commented TOML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cordee.backends.profile_draft import quoted_text, value_lines
from cordee.core.documents.toml_text import quoted_key
from cordee.job.profile import ClusterProfile, NodeGroupTable, PartitionTable

_FAST = ("hsn", "ib", "ens", "bond", "en")
_SHARED_DATA = (
    "# A data set that the site keeps for all, so that nobody makes a copy; `cordee data list` shows them.",
    "# [datasets.imagenet]",
    '# path = "/store/imagenet"',
    '# licence = "non-commercial research"',
    '# group = "imagenet"  # the Unix group that may read it',
)


def draft_text(
    profile: ClusterProfile, facts: dict[str, Any], unenforced: dict[str, dict[str, Any]], unknown: list[str]
) -> str:
    """Return the profile as TOML with comments.

    Args:
        profile: what was found.
        facts: what has no key in a profile, shown in comments.
        unenforced: accounts and QOS that are known and not enforced, shown in comments.
        unknown: sentences on what could not be found out.
    """
    lines = [
        f"# Cluster profile of {profile.slurm_cluster or profile.name}, drafted by `cordee cluster discover`.",
        "# Where this Slurm answers, what it says lies under these values: a line that is removed follows Slurm.",
        f"name = {quoted_text(profile.name)}",
        'scheduler = "slurm"',
    ]
    if profile.slurm_cluster:
        lines.append(
            f"slurm_cluster = {quoted_text(profile.slurm_cluster)}  # Slurm's own name: this profile is for no other"
        )
    lines += [*_requeue(profile, facts), *_hints(facts), "", *_remarks(facts)]
    if unknown:
        lines += ["#", "# Not found out:", *(f"# - {text}" for text in unknown)]
    for name, partition in profile.partitions.items():
        lines += ["", *_partition(name, partition, facts)]
    for table in ("accounts", "qos"):
        found = getattr(profile, table)
        for name, entry in (found or {}).items():
            lines += ["", *_entry(table, name, entry.model_dump(exclude_defaults=True))]
        for name, values in unenforced.get(table, {}).items():
            shown = _entry(table, name, {key: value for key, value in values.items() if value not in ([], False)})
            lines += ["", *(f"# {line}" for line in shown)]
    return "\n".join([*lines, "", *_SHARED_DATA]) + "\n"


def _requeue(profile: ClusterProfile, facts: dict[str, Any]) -> list[str]:
    said = {
        True: "JobRequeue=1",
        False: "JobRequeue=0, which sbatch --requeue overrides",
        None: "JobRequeue is not said",
    }
    return [f'requeue = "{profile.requeue}"  # or "resubmit", "forbidden"; {said[facts["job_requeue"]]}']


def _hints(facts: dict[str, Any]) -> list[str]:
    names = sorted(facts["interfaces"], key=lambda name: (not name.startswith(_FAST), name))
    shown = ", ".join(names) or "none"
    return [
        f"# network_interface = {quoted_text(names[0] if names else 'hsn0')}  # the fast one of the nodes; here there are {shown}",
        "# network_trusted = true  # only where nobody else can read the network: lets `cordee shell` cross it",
        '# python = "/usr/bin/python3"  # of the nodes, at least 3.9; only where it is another than here',
    ]


def _remarks(facts: dict[str, Any]) -> list[str]:
    """Return what is worth knowing of the site and has no key."""
    expire, age = facts["cred_expire_s"], facts["min_job_age_s"]
    rows = [
        ("Slurm", facts["slurm_version"]),
        ("preemption", f"{facts['preempt_type']}, {facts['preempt_mode']}" if facts["preempt_type"] else None),
        ("accounting enforces", facts["accounting_enforce"]),
        ("sacct", "answers" if facts["sacct"] else "does not answer"),
        ("job comments", "kept by accounting" if facts["job_comments_kept"] else "not kept after a job's end"),
        ("job environments", "stored by accounting: no secrets there" if facts["job_environment_stored"] else None),
        ("credentials expire", f"after {expire} s: a requeued job waits so long" if expire is not None else None),
        ("ended jobs", f"remembered for {age:.0f} s" if age is not None else None),
        ("time to end", f"{facts['kill_wait_s']:.0f} s between TERM and KILL" if facts["kill_wait_s"] else None),
    ]
    return [f"# {name + ':':20} {value}" for name, value in rows if value]


def _partition(name: str, partition: PartitionTable, facts: dict[str, Any]) -> Iterator[str]:
    yield f"[partitions.{quoted_key(name)}]"
    total, up = partition.nodes, partition.up
    mode = facts["partition_preempt_modes"].get(name)
    yield f"# {up} of {total} nodes are up; the partition is {partition.state}" + (
        f"; preemption {mode}" if mode else ""
    )
    yield from value_lines(partition.model_dump(exclude_defaults=True, exclude={"groups", "up", "state"}))
    if partition.max_time is None:
        yield "# max_time: no limit"
    if partition.groups:
        yield f"# {len(partition.groups)} kinds of nodes; above is the least that one has"
    for group in partition.groups:
        yield from _group(name, group)


def _group(name: str, group: NodeGroupTable) -> Iterator[str]:
    yield f"[[partitions.{quoted_key(name)}.groups]]"
    yield from value_lines(group.model_dump(exclude_none=True, exclude={"up"}))


def _entry(table: str, name: str, values: dict[str, Any]) -> Iterator[str]:
    yield f"[{table}.{quoted_key(name)}]"
    yield from value_lines(values)
