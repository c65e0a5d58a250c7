"""What is kept of all ranks' rings: a digest per process group and sequence number, so that memory does not grow with entries.

A rank's ring holds its last collectives, beginning wherever it was overwritten. Ranks meet by (process group, sequence number),
never by the place of an entry in a ring. A batch of coalesced calls has one sequence number, and is one call here.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

# Sizes that ranks need not agree about, by operation: of the inputs, of the outputs.
_FREE = {
    "all_to_all": (True, True),
    "all_to_all_single": (True, True),
    "all_to_all_v_single": (True, True),
    "scatter": (True, False),
    "gather": (False, True),
    "_broadcast_oop": (True, False),
    "_reduce_oop": (False, True),
    "barrier": (True, True),
    "all_reduce_barrier": (True, True),
}
ALL_TO_ALL = ("all_to_all", "all_to_all_single", "all_to_all_v_single")
_MOST_OPEN = 64
_MOST = 1 << 62
_MOST_TEXT = 1 << 20
_NUMBER = re.compile(r"\d{1,9}")
_SAID = re.compile(r"(?P<library>\w{1,20}):(?P<op>\w{1,60})(?: (?P<self>\d{1,9})(?:->|<-)(?P<peer>\d{1,9}))?")
_ANONYMOUS = ("", "undefined")


class RingCall(NamedTuple):
    """What ranks must agree about in one call; None where they need not.

    Attributes:
        inputs, outputs: number of elements of each tensor.
        input_types, output_types: their types, by PyTorch's names.
        before: the calls of the same batch before it.
    """

    op: str
    inputs: tuple[int, ...] | None
    outputs: tuple[int, ...] | None
    input_types: tuple[str, ...] | None
    output_types: tuple[str, ...] | None
    before: int = -1


class RingTransfer(NamedTuple):
    """A send or receive that has not ended; `peer` is a rank of the world, `time` its creation in ns."""

    group: int
    op: str
    peer: int
    numel: tuple[int, ...]
    dtype: tuple[str, ...]
    time: int


class RingSpan:
    """What one rank has called in one group: sequence numbers `low` to `high` are in its ring.

    Attributes:
        open: the first that has not ended, None where all have.
        place, time: of that one in the ring, and when it was called, ns.
        started: whether the recorder saw it start.
        last, ended: the last call, and the last that has ended: sequence number, and when it was called.
    """

    __slots__ = ("ended", "high", "last", "low", "open", "place", "started", "time")

    def __init__(self, low: int) -> None:
        self.low = low
        self.high = low - 1
        self.open: int | None = None
        self.started = False
        self.place = self.time = 0
        self.last = self.ended = (-1, 0)


class RingGroup:
    """A process group: the same name, description and members on every rank.

    Attributes:
        members: ranks in the group's order; None where dumps do not say (Gloo).
        calls: by sequence number, the call that was seen first.
        odd: by sequence number, other calls than that, with the ranks that made them.
    """

    def __init__(self, index: int, name: str, desc: str, members: tuple[int, ...] | None) -> None:
        self.index = index
        self.name = name
        self.desc = desc
        self.members = members
        self.spans: dict[int, RingSpan] = {}
        self.calls: dict[int, int] = {}
        self.odd: dict[int, dict[int, list[int]]] = {}

    @property
    def title(self) -> str:
        return self.name if self.desc in (*_ANONYMOUS, self.name) else f"{self.name} ({self.desc})"

    @property
    def whole(self) -> bool:
        """Whether it is the group of all ranks."""
        return self.desc == "default_pg"

    def kindred(self, other: RingGroup) -> bool:
        """Return whether another group is one of the same kind, as descriptions say."""
        return other is not self and other.desc == self.desc and self.desc not in _ANONYMOUS

    def call_of(self, rank: int, sequence: int) -> int | None:
        """Return the call that a rank made, None where its ring does not say."""
        span = self.spans.get(rank)
        if span is None or not span.low <= sequence <= span.high:
            return None
        for call, ranks in self.odd.get(sequence, {}).items():
            if rank in ranks:
                return call
        return self.calls.get(sequence)

    def sides(self, sequence: int) -> dict[int, list[int]]:
        """Return the ranks whose rings hold this sequence number, by what they called."""
        found: dict[int, list[int]] = {}
        for rank in self.spans:
            call = self.call_of(rank, sequence)
            if call is not None:
                found.setdefault(call, []).append(rank)
        return found


class Ring(NamedTuple):
    """What is kept of one rank besides its groups.

    Attributes:
        waits: what has not ended, in the order of the calls: the index of a group, or a transfer.
        cut: whether the ring has forgotten its beginning.
        sizes: the elements of the last transfer that ended, by (group, op, peer).
        gloo: whether transfers are not recorded.
        transfers: whether it made transfers that are not recorded.
        odd_entries: entries that could not be understood.
        world: the ranks of the group of all, as it says.
    """

    waits: list[int | RingTransfer]
    cut: bool
    sizes: dict[tuple[int, str, int], tuple[int, ...]]
    gloo: bool
    transfers: bool
    odd_entries: int
    world: tuple[int, ...] | None


class _Reading:
    """One group while one rank's ring is read: the call that is not complete yet."""

    __slots__ = ("call", "done", "group", "op_id", "parts", "place", "rank", "seq", "span", "started", "time")

    def __init__(self, group: RingGroup, rank: int) -> None:
        self.group = group
        self.rank = rank
        self.span: RingSpan | None = None
        self.seq = -1
        self.parts = self.op_id = self.call = self.place = self.time = 0
        self.done = self.started = False

    def close(self, cut: bool, gloo: bool) -> None:
        """Take the call whose last part was read into the group's digest."""
        group, seq, span = self.group, self.seq, self.span
        # What a ring begins with may be the rest of a batch.
        whole = not (cut and self.place == 0 and self.parts > 1)
        if span is None:
            span = self.span = RingSpan(seq if whole else seq + 1)
        if whole:
            first = group.calls.setdefault(seq, self.call)
            if first != self.call:
                group.odd.setdefault(seq, {}).setdefault(self.call, []).append(self.rank)
        span.high = max(span.high, seq)
        span.last = (seq, self.time)
        if self.done:
            span.ended = span.last
        if not self.done:
            if span.open is None:
                span.open, span.place, span.started, span.time = seq, self.place, self.started, self.time
        elif not gloo:  # a stream keeps its order; of what never ends (CUDA graphs) the recorder hears nothing
            span.open = None


class Rings:
    """The digest of all dumps that were added.

    Attributes:
        calls: what groups' digests name by number.
    """

    def __init__(self) -> None:
        self.groups: list[RingGroup] = []
        self.ranks: dict[int, Ring] = {}
        self.calls: list[RingCall] = []
        self._groups: dict[tuple[str, str, tuple[int, ...] | None], RingGroup] = {}
        self._calls: dict[RingCall, int] = {}
        self._names: dict[str, tuple[str, int, bool, bool, bool]] = {}
        self._members: dict[str, tuple[int, ...]] = {}
        self._types: dict[tuple[str, ...], tuple[str, ...]] = {}

    def members_of(self, dump: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        """Return the ranks of each group that a dump names; none of Gloo."""
        found = {}
        for about in dump["pg_config"].values():
            name, said = (about.get("name"), about.get("ranks")) if isinstance(about, dict) else (None, None)
            if isinstance(name, str) and isinstance(said, str) and len(said) < _MOST_TEXT:
                members = self._members.get(said)
                if members is None:
                    members = self._members[said] = tuple(map(int, _NUMBER.findall(said)))
                if members:
                    found[name] = members
        return found

    def add(self, rank: int, dump: dict[str, Any]) -> None:
        """Take one rank's dump into the digest; what of it cannot be understood is counted."""
        members = self.members_of(dump)
        entries = dump["entries"]
        cut = bool(entries) and isinstance(entries[0], dict) and entries[0].get("record_id", 0) != 0
        reading: dict[tuple[str, str], _Reading] = {}
        transfers: list[_Moved] = []
        calls = self._calls
        odd = 0
        gloo = unrecorded = False
        for place, entry in enumerate(entries):
            try:
                name, desc = entry["process_group"]
                said, time = entry["profiling_name"], entry["time_created_ns"]
                if type(name) is not str or type(desc) is not str or type(said) is not str or type(time) is not int:
                    raise TypeError
                op, peer, free_in, free_out, gloo = self.call_name(said)
                now = reading.get((name, desc))
                if now is None:
                    now = reading[name, desc] = _Reading(self._group(name, desc, members.get(name)), rank)
                done = entry["state"] == "completed" or (gloo and entry["retired"] is True)
                if peer >= 0 or (op == "coalesced" and entry.get("is_p2p") is True):
                    transfers.append(_moved(entry, place, op, done, now.group, peer, time))
                    continue
                seq = entry["collective_seq_id"]
                if type(seq) is not int or not 0 <= seq < _MOST:
                    raise TypeError
                inputs, input_types = entry.get("input_sizes"), entry.get("input_dtypes")
                outputs, output_types = entry.get("output_sizes"), entry.get("output_dtypes")
                numel = None if free_in else _numel(inputs)
                types = None if free_in else self._kept(input_types)
                call = RingCall(
                    op,
                    numel,
                    None if free_out else numel if numel is not None and outputs == inputs else _numel(outputs),
                    types,
                    None if free_out else types if types and output_types == input_types else self._kept(output_types),
                    now.call if seq == now.seq else -1,
                )
            except (KeyError, TypeError, ValueError, AttributeError):
                odd += 1
                continue
            if gloo and type(op_id := entry.get("op_id")) is int:
                unrecorded = unrecorded or 0 < now.op_id < op_id - 1
                now.op_id = op_id
            index = calls.get(call)
            if index is None:
                index = calls[call] = len(self.calls)
                self.calls.append(call)
            if seq != now.seq:
                if now.parts:
                    now.close(cut, gloo)
                now.seq, now.parts, now.place, now.time = seq, 0, place, time
            now.parts += 1
            now.call, now.done, now.started = index, done, entry["state"] == "started"
        waits: dict[int, int | RingTransfer] = {}
        for now in reading.values():
            if now.parts:
                now.close(cut, gloo)
            if now.span is not None:
                now.group.spans[rank] = now.span
                if now.span.open is not None:
                    waits[now.span.place] = now.group.index
        sizes = _settle(transfers, waits)
        world = next((now.group.members for now in reading.values() if now.group.whole), None)
        order = [waits[at] for at in sorted(waits)[:_MOST_OPEN]]
        self.ranks[rank] = Ring(order, cut, sizes, gloo, unrecorded, odd, world)

    def _group(self, name: str, desc: str, members: tuple[int, ...] | None) -> RingGroup:
        key = (name, desc, members)
        if key not in self._groups:
            self._groups[key] = RingGroup(len(self.groups), name, desc, members)
            self.groups.append(self._groups[key])
        return self._groups[key]

    def _kept(self, types: Any) -> tuple[str, ...]:
        """Return types of tensors, the same tuple for all that are alike: dumps have copies of them by the thousand."""
        found = _types(types)
        return self._types.setdefault(found, found)

    def call_name(self, said: str) -> tuple[str, int, bool, bool, bool]:
        """Return what `nccl:send 0->1` says: operation, peer (-1: none), whether sizes of inputs and outputs are free, Gloo.

        Raises:
            ValueError: it is said in another way.
        """
        if known := self._names.get(said):
            return known
        match = _SAID.fullmatch(said)
        if match is None:
            raise ValueError
        op = match["op"]
        if (op in ("send", "recv")) != (match["peer"] is not None):
            raise ValueError
        peer = -1 if match["peer"] is None else int(match["peer"])
        found = self._names[said] = (op, peer, *_FREE.get(op, (False, False)), match["library"] == "gloo")
        return found


class _Moved(NamedTuple):
    """An entry of a send, a receive, or the end of a batch of them."""

    place: int
    batch: int
    done: bool
    what: RingTransfer


def _moved(entry: dict[str, Any], place: int, op: str, done: bool, group: RingGroup, peer: int, time: int) -> _Moved:
    batch = entry["p2p_seq_id"]
    if type(batch) is not int:
        raise TypeError
    if peer < 0:
        return _Moved(place, batch, done, RingTransfer(group.index, op, -1, (), (), time))
    peer = peer if group.members is None else group.members[peer] if peer < len(group.members) else -1
    side = "input" if op == "send" else "output"
    numel, dtype = _numel(entry[f"{side}_sizes"]), _types(entry[f"{side}_dtypes"])
    return _Moved(place, batch, done, RingTransfer(group.index, op, peer, numel, dtype, time))


def _settle(moved: list[_Moved], waits: dict[int, int | RingTransfer]) -> dict[tuple[int, str, int], tuple[int, ...]]:
    """Add the transfers that have not ended to `waits`; return the sizes of the last that did.

    Only the end of a batch says whether its transfers have ended.
    """
    batches = {(one.what.group, one.batch): one.done for one in moved if one.what.op == "coalesced"}
    sizes: dict[tuple[int, str, int], tuple[int, ...]] = {}
    for one in moved:
        what = one.what
        if what.peer >= 0:
            if one.done or batches.get((what.group, one.batch), False):
                sizes[what.group, what.op, what.peer] = what.numel
            else:
                waits[one.place] = what
    return sizes


def _numel(sizes: Any) -> tuple[int, ...]:
    """Return the number of elements of each tensor.

    Raises:
        TypeError: these are no sizes.
    """
    found = []
    for size in sizes:
        numel = 1
        for length in size:
            if type(length) is not int or not 0 <= length < _MOST:
                raise TypeError
            numel *= length
        found.append(numel)
    return tuple(found)


def _types(types: Any) -> tuple[str, ...]:
    for one in types:
        if type(one) is not str:
            raise TypeError
    return tuple(types)
