"""InfiniBand fabrics as `ibnetdiscover` prints them."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from cordee.core.network import Network, NetworkError, Record, network_of

_SWITCH = re.compile(r'Switch\s+\d+\s+"(S-[0-9a-fA-F]+)"\s*(?:#\s*"([^"]*)")?')
_PORT = re.compile(r'\[\d+\](?:\([0-9a-fA-F]+\))?\s+"([SH])-([0-9a-fA-F]+)"\[[^\]]*\]\S*\s*(?:#\s*"([^"]*)")?')
_NOT_A_NODE = "Aggregation Node"  # SHARP's, inside a switch


def is_fabric(text: str) -> bool:
    """Return whether a text is what `ibnetdiscover` prints."""
    return _SWITCH.search(text) is not None


def read_fabric(lines: Iterable[str], source: str, *, file: str | None = None) -> Network:
    """Return the network that `ibnetdiscover` found: a node's name is the first word of its adapters' descriptions.

    Switches without nodes are above those with nodes, by how many links they are away from one.

    Raises:
        NetworkError: no switch has a node.
    """
    described: dict[str, str] = {}
    nodes: dict[str, list[str]] = {}
    links: dict[str, set[str]] = {}
    here = None
    for line in _whole(lines, file):
        if begun := _SWITCH.match(line):
            here = begun[1]
            described[here] = begun[2] or ""
            nodes.setdefault(here, [])
            links.setdefault(here, set())
        elif line[:1] != "[":
            here = None if not line.strip() else here
        elif here is not None and (port := _PORT.match(line)):
            kind, guid, text = port[1], port[2], port[3] or ""
            if kind == "S":
                links[here].add(f"S-{guid}")
            elif text.split() and not text.endswith(_NOT_A_NODE):
                nodes[here].append(text.split()[0])
    level = _levels(nodes, links)
    names = _names(described)
    records = [
        Record(
            names[guid],
            nodes[guid],
            [names[other] for other in sorted(links[guid]) if level.get(other, -2) == level.get(guid, -1) - 1],
        )
        for guid in described
    ]
    beside = [(names[one], names[other]) for one in links for other in links[one] if one in names and other in names]
    return network_of(records, source, kind="fabric", rails=True, links=beside, file=file)


def _whole(lines: Iterable[str], file: str | None) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > 4096:
            allowed = "what ibnetdiscover prints, a port on each line"
            raise NetworkError("this line is too long", file=file, line=number, given=line[:40], allowed=allowed)
        yield line


def _levels(nodes: dict[str, list[str]], links: dict[str, set[str]]) -> dict[str, int]:
    """Return how many links each switch is away from the nearest one that has nodes; none for those that reach none."""
    level = {guid: 0 for guid, there in nodes.items() if there}
    waiting = deque(level)
    while waiting:
        guid = waiting.popleft()
        for other in links.get(guid, ()):
            if other not in level and other in nodes:
                level[other] = level[guid] + 1
                waiting.append(other)
    return level


def _names(described: dict[str, str]) -> dict[str, str]:
    """Return a name of each switch: its own, with its GUID where several have that one."""
    plain = {}
    for guid, text in described.items():
        named = re.match(r"MF0;([^:;]+):", text)  # MF0;name:MQM8700/U1 of a managed switch
        plain[guid] = named[1] if named else text.strip() or guid
    count = Counter(plain.values())
    return {guid: name if count[name] == 1 else f"{name} {guid[2:]}" for guid, name in plain.items()}
