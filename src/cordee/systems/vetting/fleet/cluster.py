"""The nodes of a cluster as Slurm sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cordee.backends.slurm.node.commands import SlurmError, parse_records, run_command
from cordee.core.hostlist import expand_nodes

_SUFFIXES = "*~#!%$@^-"
_DRAINED = frozenset(["DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"])
_DOWN = frozenset(
    ["DOWN", "UNKNOWN", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT", "REBOOT_ISSUED", "FUTURE"]
)
_WORKING = frozenset(["ALLOCATED", "MIXED", "COMPLETING", "ALLOC", "MIX", "COMP"])
_MAINTENANCE = frozenset(["MAINT", "MAINTENANCE"])
_SIGNED = re.compile(r"\s*\[[^\[\]]+@[^\[\]]+\]\s*\Z")


@dataclass(frozen=True)
class SlurmNode:
    """One node.

    Attributes:
        words: its state, as `IDLE` and `DRAIN`.
        reason: why it is drained or down, without who said so and when; empty when nobody did.
        partitions: that it is in.
    """

    name: str
    words: frozenset[str]
    reason: str = ""
    partitions: tuple[str, ...] = ()

    @property
    def drained(self) -> bool:
        """Whether it takes no new jobs because somebody said so."""
        return bool(self.words & _DRAINED)

    @property
    def down(self) -> bool:
        """Whether it is down, off or on its way."""
        return bool(self.words & _DOWN)

    @property
    def working(self) -> bool:
        """Whether jobs are on it."""
        return bool(self.words & _WORKING)

    @property
    def maintenance(self) -> bool:
        """Whether a reservation for maintenance holds it."""
        return bool(self.words & _MAINTENANCE)

    @property
    def reserved(self) -> bool:
        """Whether a reservation holds it."""
        return "RESERVED" in self.words


def ask_nodes(names: str = "", *, timeout_s: float = 30.0) -> dict[str, SlurmNode]:
    """Return the cluster's nodes by name.

    Args:
        names: one node or a list of nodes as Slurm writes them; empty: all.
        timeout_s: for the controller's answer.

    Raises:
        SlurmError: the controller does not answer, or does not know a name.
    """
    argv = ["scontrol", "show", "node", *([names] if names else []), "--oneliner", "--all"]
    nodes = parse_nodes(run_command(argv, timeout_s=timeout_s))
    said = run_command(["scontrol", "show", "reservation", "--oneliner"], timeout_s=timeout_s)
    for name, words in parse_reservations(said).items():
        if name in nodes:
            nodes[name] = replace(nodes[name], words=nodes[name].words | words)
    return nodes


def parse_reservations(text: str) -> dict[str, frozenset[str]]:
    """Return what the reservations that `scontrol show reservation --oneliner` prints say of nodes now: `RESERVED`, and
    `MAINT` for maintenance. A node's own state says so only after a while."""
    found: dict[str, frozenset[str]] = {}
    for record in parse_records(text):
        if record.get("State") != "ACTIVE":
            continue
        maintenance = "MAINT" in record.get("Flags", "").split(",")
        words = frozenset(["RESERVED", "MAINT"] if maintenance else ["RESERVED"])
        for name in expand_nodes(record.get("Nodes", "").replace("(null)", "")):
            found[name] = found.get(name, frozenset()) | words
    return found


def parse_nodes(text: str) -> dict[str, SlurmNode]:
    """Return the nodes that `scontrol show node --oneliner` prints."""
    found = {}
    for record in parse_records(text):
        name = record.get("NodeName")
        if not name:
            continue
        words = frozenset(word.rstrip(_SUFFIXES) for word in record.get("State", "").split("+"))
        reason = _SIGNED.sub("", record.get("Reason", ""))
        partitions = tuple(part for part in record.get("Partitions", "").split(",") if part)
        found[name] = SlurmNode(name, words, reason, partitions)
    return found


def ask_node(name: str) -> SlurmNode:
    """Return one node as it is now.

    Raises:
        SlurmError: the controller does not answer, or does not know it.
    """
    nodes = ask_nodes(name)
    if name not in nodes:
        raise SlurmError(["scontrol", "show", "node", name], f"there is no node {name}")
    return nodes[name]
