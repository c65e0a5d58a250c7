"""How nodes are connected: leaf switches with their nodes, what stands above them, and how far two of them are apart."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence

from cordee.core.errors import CordeeError
from cordee.core.hostlist import expand_nodes

_MOST_FAULTS = 20


class NetworkError(CordeeError):
    """A description of a network cannot be used."""

    kind = "document"
    exit_code = 2


class Record(NamedTuple):
    """One switch or block as a source describes it: nodes that it holds itself, switches directly below it, its line."""

    name: str
    nodes: Sequence[str] = ()
    below: Sequence[str] = ()
    line: Optional[int] = None


@dataclass(frozen=True)
class Level:
    """Leaves put together by what stands above them.

    Attributes:
        name: `switch`, `group`, `block`, `level 1`, ...
        of: the group of each leaf.
    """

    name: str
    of: dict[str, str]


@dataclass(frozen=True)
class Network:
    """How nodes are connected.

    A leaf is a switch that holds nodes, or a block; where each node has ports on several switches, as in fabrics with a
    rail for every GPU, those switches together are one leaf.

    Attributes:
        kind: `tree`, `block`, `dragonfly` or `fabric`.
        source: where this was read.
        leaves: the nodes of each leaf.
        levels: the leaves themselves first, then what they are grouped by; none that holds all of them.
        faults: what in the source contradicts itself, in words; the first mention counts.
    """

    kind: str
    source: str
    leaves: dict[str, tuple[str, ...]]
    levels: tuple[Level, ...]
    faults: tuple[str, ...] = ()
    _links: dict[str, set[str]] = field(default_factory=dict, repr=False)
    _switches: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    @property
    def leaf_of(self) -> dict[str, str]:
        """The leaf of each node."""
        return {node: leaf for leaf, nodes in self.leaves.items() for node in nodes}

    def hops_from(self, leaves: Iterable[str]) -> Iterator[tuple[str, dict[str, int]]]:
        """Yield `hops` of each leaf; those with the same switches beside or above them are searched from once."""
        searched: dict[frozenset[str], tuple[str, dict[str, int]]] = {}
        for leaf in leaves:
            own = self._switches[leaf]
            beside = frozenset(other for switch in own for other in self._links.get(switch, ())).difference(own)
            first, hops = searched.get(beside, ("", {}))
            if not beside or leaf not in hops:
                searched[beside] = (leaf, self.hops(leaf))
                yield searched[beside][0], searched[beside][1]
            else:
                yield leaf, {**hops, leaf: 1, first: hops[leaf]}

    def hops(self, leaf: str) -> dict[str, int]:
        """Return how many switches lie on the way from a node of `leaf` to one of each other leaf, and of its own: 1.

        A leaf that cannot be reached is not there: blocks do not say what lies between them. Between groups of a dragonfly it
        is the longest of the minimal routes, 4.
        """
        if self.kind == "dragonfly":
            group = self.levels[-1].of
            return {to: 1 if to == leaf else 2 if group[to] == group[leaf] else 4 for to in self.leaves}
        if self.kind == "block":
            return {leaf: 1}
        seen = dict.fromkeys(self._switches[leaf], 1)
        waiting = deque(seen)
        while waiting:
            here = waiting.popleft()
            for there in self._links.get(here, ()):
                if there not in seen:
                    seen[there] = seen[here] + 1
                    waiting.append(there)
        found = {}
        for to, switches in self._switches.items():
            near = [seen[switch] for switch in switches if switch in seen]
            if near:
                found[to] = min(near)
        return found


def network_of(
    records: Iterable[Record],
    source: str,
    *,
    kind: str = "tree",
    rails: bool = False,
    links: Iterable[tuple[str, str]] = (),
    file: Optional[str] = None,
    faults: Iterable[str] = (),
) -> Network:
    """Return the network that records describe, in any order.

    Args:
        source: where they come from, in words.
        kind: as in `Network`; the groups of a dragonfly are records above its switches.
        rails: a node may have ports on several switches.
        links: between switches, beside those from each record to what is below it.
        file: named in errors.
        faults: what was wrong before.

    Raises:
        NetworkError: there are no nodes, or a switch is above itself.
    """
    found = list(faults)
    known: dict[str, Record] = {}
    for record in records:
        if record.name in known:
            found.append(f"{record.name} is described twice{_at(record)}: the first one counts")
        else:
            known[record.name] = record
    for record in known.values():
        unknown = [name for name in record.below if name not in known]
        if unknown:
            found.append(f"{record.name} is above {_named(unknown)}, which nothing describes{_at(record)}")
    _refuse_circles(known, file)
    leaves, switches = _leaves(known, rails, found)
    if not leaves:
        raise NetworkError(
            "this describes no switch or block that has nodes",
            file=file,
            given=source,
            allowed="SwitchName=s0 Nodes=n[1-16], BlockName=b0 Nodes=n[1-16], topology.yaml, or what ibnetdiscover prints",
            next="give another file",
        )
    above: dict[str, set[str]] = {}
    joined: dict[str, set[str]] = {}
    for record in known.values():
        for below in record.below:
            if below in known:
                above.setdefault(below, set()).add(record.name)
    for here, there in (*links, *((below, up) for below, ups in above.items() for up in ups)):
        joined.setdefault(here, set()).add(there)
        joined.setdefault(there, set()).add(here)
    levels = _levels("block" if kind == "block" else "switch", switches, above)
    more = [f"and {len(found) - _MOST_FAULTS} more of this kind"] if len(found) > _MOST_FAULTS else []
    return Network(kind, source, leaves, levels, (*found[:_MOST_FAULTS], *more), joined, switches)


def of_lists(
    members: Mapping[str, Sequence[str]],
    source: str,
    *,
    kind: str = "tree",
    groups: Optional[Mapping[str, Sequence[str]]] = None,
    file: Optional[str] = None,
    faults: Iterable[str] = (),
) -> Network:
    """Return the network of switches or blocks of which all nodes are known: who has all nodes of another is above it.

    Args:
        members: the nodes of each.
        source, kind, file, faults: as for `network_of`.
        groups: the switches of each group of a dragonfly.

    Raises:
        NetworkError: there are no nodes.
    """
    sets = {name: frozenset(nodes) for name, nodes in members.items() if nodes}
    order = sorted(sets, key=lambda name: len(sets[name]))
    holders: dict[str, list[str]] = {}
    for name in order:
        for node in sets[name]:
            holders.setdefault(node, []).append(name)
    above: dict[str, str] = {}
    for name in order:
        larger = holders[next(iter(sets[name]))]
        up = next((one for one in larger[larger.index(name) + 1 :] if sets[one] >= sets[name]), None)
        if up is not None:
            above[name] = up
    leaf = leaf_of(members)
    own: dict[str, list[str]] = {name: [] for name in members}
    for name, nodes in members.items():
        own[name] = [node for node in dict.fromkeys(nodes) if leaf[node] == name]
    found = list(faults)
    for node, several in holders.items():
        chain, at = {several[0]}, several[0]
        while at in above:
            at = above[at]
            chain.add(at)
        if not chain.issuperset(several):
            found.append(f"{node} is below {_named(several)}, none of which is above the others: {leaf[node]} counts")
    below: dict[str, list[str]] = {}
    for name in members:
        if name in above:
            below.setdefault(above[name], []).append(name)
    records = [Record(name, own[name], below.get(name, ())) for name in members]
    records += [Record(name, (), switches) for name, switches in (groups or {}).items()]
    return network_of(records, source, kind=kind, file=file, faults=found)


def members_of(switches: Mapping[str, str]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the names in the list (`n[1-4]`) of each switch, and why a list could not be read."""
    members, malformed = {}, {}
    for switch, folded in switches.items():
        try:
            members[switch] = expand_nodes(folded)
        except CordeeError as error:
            malformed[switch] = str(error)
    return members, malformed


def leaf_of(members: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the switch of each node; of several that hold it, the one with the fewest nodes: the leaf."""
    found: dict[str, str] = {}
    for switch in sorted(members, key=lambda name: (-len(members[name]), name)):
        found.update(dict.fromkeys(members[switch], switch))
    return found


def _refuse_circles(known: Mapping[str, Record], file: Optional[str]) -> None:
    done: set[str] = set()
    for first in known:
        path: dict[str, None] = {}
        waiting = [(first, False)]
        while waiting:
            name, leaving = waiting.pop()
            if leaving:
                del path[name]
                done.add(name)
            elif name in path:
                circle = [*list(path)[list(path).index(name) :], name]
                raise NetworkError(
                    "a switch is above itself",
                    file=file,
                    line=known[name].line,
                    given=" > ".join(circle[:8]),
                    allowed="switches above others, up to the top",
                    next="take one of them out of the Switches= of another",
                )
            elif name in known and name not in done:
                path[name] = None
                waiting.append((name, True))
                waiting += [(below, False) for below in known[name].below]


def _leaves(
    known: Mapping[str, Record], rails: bool, faults: list[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Return the nodes and the switches of each leaf."""
    of_node: dict[str, list[str]] = {}
    for record in known.values():
        for node in dict.fromkeys(record.nodes):
            of_node.setdefault(node, []).append(record.name)
    sets: dict[frozenset[str], list[str]] = {}
    for node, names in of_node.items():
        if len(names) > 1 and not rails:
            faults.append(f"{node} is below {_named(names)}: {names[0]} counts")
            names = names[:1]
        sets.setdefault(frozenset(names), []).append(node)
    nodes: dict[str, tuple[str, ...]] = {}
    switches: dict[str, tuple[str, ...]] = {}
    for whole, parts in _together(sets).items():
        name = _short(whole, switches)
        nodes[name] = tuple(node for part in parts for node in sets[part])
        switches[name] = tuple(sorted(whole))
    return nodes, switches


def _levels(lowest: str, switches: Mapping[str, tuple[str, ...]], above: Mapping[str, set[str]]) -> tuple[Level, ...]:
    levels = [Level(lowest, {leaf: leaf for leaf in switches})]
    ends = {leaf: frozenset(names) for leaf, names in switches.items()}
    while True:
        higher: dict[frozenset[str], list[str]] = {}
        for leaf, names in ends.items():
            ups = frozenset(up for name in names for up in above.get(name, ()))
            higher.setdefault(ups or names, []).append(leaf)
        whole_of: dict[str, frozenset[str]] = {}
        named: dict[frozenset[str], str] = {}
        for whole, parts in _together(higher).items():
            named[whole] = _short(whole, named.values())
            whole_of.update({leaf: whole for part in parts for leaf in higher[part]})
        if whole_of == ends or len(named) == 1:
            return tuple(levels)
        ends = whole_of
        if len(named) < len(set(levels[-1].of.values())):
            name = "group" if len(levels) == 1 else f"level {len(levels)}"
            levels.append(Level(name, {leaf: named[ends[leaf]] for leaf in switches}))


def _together(sets: Iterable[frozenset[str]]) -> dict[frozenset[str], list[frozenset[str]]]:
    """Return the sets by the first one that holds all of each: a broken link does not put its end apart."""
    found: dict[frozenset[str], list[frozenset[str]]] = {}
    holding: dict[str, list[frozenset[str]]] = {}
    for one in sorted(sets, key=len, reverse=True):
        whole = next((other for other in holding.get(min(one), ()) if other >= one), one)
        found.setdefault(whole, []).append(one)
        if whole is one:
            for name in one:
                holding.setdefault(name, []).append(one)
    return {whole: found[whole] for whole in sorted(found, key=lambda whole: natural(min(whole)))}


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return what sorts `n2` before `n10`."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _short(names: Iterable[str], taken: Iterable[str]) -> str:
    ordered = sorted(names, key=natural)
    short = ordered[0] if len(ordered) == 1 else f"{ordered[0]} and {len(ordered) - 1} more"
    return short if short not in taken else ", ".join(ordered)


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _at(record: Record) -> str:
    return f" (line {record.line})" if record.line else ""
