"""Slurm's own words about its network: topology.conf, and what `scontrol show topology` prints."""

from __future__ import annotations

import os
import re
from typing import Iterator, Mapping, Optional, Sequence

from cordee.backends.slurm.node.commands import run_command
from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes, fold_nodes
from cordee.core.network import Network, NetworkError, Record, network_of, of_lists

SCONTROL = "scontrol show topology"
_ASK_S = 10.0
_LONGEST_LINE = 1 << 20
_FIELD = re.compile(r'(\w+)\s*=\s*("[^"]*"|\S*)')
_NAMING = ("switchname", "blockname", "aggregatedblock", "blocksizes")


def ask_network(*, timeout_s: float = _ASK_S) -> Optional[Network]:
    """Return the network as the controller knows it; None where it knows none.

    Raises:
        SlurmError: it cannot be asked.
        NetworkError: its answer cannot be used.
    """
    whole_lines = {name: value for name, value in os.environ.items() if name != "SLURM_TOPO_LEN"}
    text = run_command(["scontrol", "show", "topology"], timeout_s=timeout_s, env=whole_lines)
    return read_topology(text, SCONTROL) if re.search("Name=|Block=", text) else None


def leaves_here() -> dict[str, str]:
    """Return the nodes below each leaf switch, or of each block, folded; empty where the controller knows none.

    Raises:
        SlurmError, NetworkError: as `ask_network`.
    """
    network = ask_network()
    return {leaf: fold_nodes(nodes) for leaf, nodes in network.leaves.items()} if network is not None else {}


def read_topology(text: str, source: str, *, file: Optional[str] = None) -> Network:
    """Return the network of a topology.conf or of `scontrol show topology`, with switches or with blocks.

    Raises:
        NetworkError: it cannot be understood, or describes no nodes.
    """
    switches: list[Record] = []
    blocks: dict[str, list[str]] = {}
    wider: dict[str, list[str]] = {}
    sizes: list[int] = []
    for number, line in _lines(text, file):
        words = {name.lower(): value.strip('"') for name, value in _FIELD.findall(line)}
        naming = next((name for name in _NAMING if words.get(name)), None)
        nodes = _expanded(words.get("nodes", ""), file, number)
        if naming == "switchname":
            below = _expanded(words.get("switches", ""), file, number)
            # scontrol lists all nodes below a switch that is no leaf, too.
            switches.append(Record(words[naming], () if below and "level" in words else nodes, below, number))
        elif naming == "blockname":
            blocks[words[naming]] = nodes
        elif naming == "aggregatedblock":
            wider[words[naming]] = nodes
        elif naming == "blocksizes":
            sizes = block_sizes(words[naming].split(","), file, number)
        else:
            raise NetworkError(
                "this line names neither a switch nor a block",
                file=file,
                line=number,
                given=line[:80],
                allowed="SwitchName=s0 Nodes=n[1-16], SwitchName=top Switches=s[0-3], BlockName=b0 Nodes=n[1-16], BlockSizes=16,64",
                next="mend the line, or give a file of another form",
            )
    if not blocks:
        return network_of(switches, source, file=file)
    if switches:
        allowed = "switches or blocks"
        raise NetworkError("this has both switches and blocks", file=file, given=source, allowed=allowed)
    return of_blocks(blocks, sizes, source, wider=wider, file=file)


def of_blocks(
    blocks: Mapping[str, Sequence[str]],
    sizes: Sequence[int],
    source: str,
    *,
    wider: Optional[Mapping[str, Sequence[str]]] = None,
    file: Optional[str] = None,
) -> Network:
    """Return the network of blocks; those of larger sizes are made of neighbours, as Slurm makes them.

    Args:
        blocks: the nodes of each, in their order.
        sizes: in nodes, that of a block first.
        source, file: as for `network_of`.
        wider: the nodes of larger blocks, where they are known.
    """
    members = {**blocks, **(wider or {})}
    names = list(blocks)
    for size in sizes[1:]:
        count = max(1, size // sizes[0])
        for first in range(0, len(names), count):
            together = names[first : first + count]
            if 1 < len(together) < len(names):
                members[fold_nodes(together)] = [node for name in together for node in blocks[name]]
    return of_lists(members, source, kind="block", file=file)


def block_sizes(given: Sequence[object], file: Optional[str], line: Optional[int]) -> list[int]:
    """Return sizes of blocks as numbers.

    Raises:
        NetworkError: one is none.
    """
    texts = [str(size).strip() for size in given]
    if not all(text.isdigit() and int(text) for text in texts):
        allowed = "whole numbers above 0, as 16,64"
        raise NetworkError("this is no size of a block", file=file, line=line, given=",".join(texts), allowed=allowed)
    return [int(text) for text in texts]


def _lines(text: str, file: Optional[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments, those that go on joined, each with its number."""
    whole, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > _LONGEST_LINE:
            raise NetworkError(
                "this line is too long",
                file=file,
                line=number,
                given=f"{len(line)} characters: {line[:40]}...",
                allowed=f"at most {_LONGEST_LINE}",
                next="write lists of nodes with ranges, as n[1-4096]",
            )
        plain = line.partition("#")[0].rstrip()
        begun = begun or number
        whole += plain[:-1] + " " if plain.endswith("\\") else plain
        if not plain.endswith("\\"):
            if whole.strip():
                yield begun, whole.strip()
            whole, begun = "", 0
    if whole.strip():
        yield begun, whole.strip()


def _expanded(names: str, file: Optional[str], line: int) -> list[str]:
    try:
        return expand_nodes(names) if names != "(null)" else []
    except CordeeError as error:
        raise NetworkError(
            error.text, file=file, line=line, given=str(error.given)[:80], allowed=error.allowed
        ) from None
