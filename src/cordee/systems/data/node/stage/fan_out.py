"""Bringing the blocks of a data set to this node: each node reads its share of the source, and has the rest from the others.

Block b is read by node `b mod n`, counted over those that stage together; where that one is gone, by the next. So the source
is read once, all links carry the same, and whoever is lost is missed for its share alone.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, NamedTuple, Optional, Sequence

from cordee.core.errors import CordeeError, DataError, WireError
from cordee.systems.data.node.stage.blocks import BlockFolder
from cordee.wire.peers import CorruptFrame, PeerStream, connect
from cordee.wire.stores._base import ObjectStore

_READERS = 4
_PEER_THREADS = 8
_ANSWER_S = 30.0
_CONNECT_S = 10.0
# A peer holds a question for a block that it has not got yet for so long.
HELD_S = 2.0
_RETRIES = 3
# Without a single new block for so long, this node reads what it lacks from the source.
PATIENCE_S = 60.0


class StagingPeer(NamedTuple):
    """A node that stages the same: its name, and where it listens."""

    node: str
    address: str
    port: int


class StagingRate:
    """Lets through so many bytes per second, of all threads together; None: all of them."""

    def __init__(self, bytes_per_s: Optional[float]) -> None:
        self.bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_at = time.monotonic()

    def take(self, count: int) -> None:
        """Wait until so many bytes may go."""
        if self.bytes_per_s is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self.bytes_per_s
            pause_s = self._free_at - now
        time.sleep(max(0.0, pause_s))


class FanOut:
    """Fills a folder with the blocks that it lacks.

    Args:
        name: of the data set.
        store: the source.
        folder: to fill.
        node: this node's name.
        peers: all that stage together in the order that all of them have, this node among them if it reads a share.
        token: that peers know each other by.
        rate: of what is brought here.
        stopped: set when it is to end early.
        tell: told how many bytes are there, after each block.

    Attributes:
        source_bytes, peer_bytes: where what came now was read.
        corrupt: blocks that came damaged and were asked for again, with the node that sent them.
        gone: peers that were lost, or had no share to give.
    """

    def __init__(
        self,
        name: str,
        store: ObjectStore,
        folder: BlockFolder,
        node: str = "",
        peers: Sequence[StagingPeer] = (),
        token: bytes = b"",
        rate: Optional[StagingRate] = None,
        stopped: Optional[threading.Event] = None,
        tell: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._name, self._store, self._folder, self._node = name, store, folder, node
        self._peers, self._token = list(peers), token
        self._rate, self._stopped, self._tell = rate or StagingRate(None), stopped or threading.Event(), tell
        self.source_bytes = self.peer_bytes = 0
        self.corrupt: list[tuple[int, str]] = []
        self.gone: set[str] = set()
        self._lock = threading.Lock()
        self._taken: set[int] = set()
        self._failure: Optional[BaseException] = None
        self._last_came, self._impatient = time.monotonic(), False
        self._own = next((place for place, peer in enumerate(self._peers) if peer.node == node), None)

    def run(self) -> None:
        """Return once all blocks are there.

        Raises:
            DataError: the source does not give them; it was changed, or is gone.
            OSError: they cannot be written.
        """
        others = [peer for peer in self._peers if peer.node != self._node]
        shares = [others[place::_PEER_THREADS] for place in range(min(_PEER_THREADS, len(others)))]
        works: list[Callable[[], None]] = [self._read_source] * _READERS
        works += [_asking(self._ask_peers, share) for share in shares]
        threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        if self._stopped.is_set() and not self._folder.whole:
            raise DataError("staging was stopped", given=self._name)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = self._failure or error

    @property
    def _over(self) -> bool:
        return self._failure is not None or self._stopped.is_set() or self._folder.whole

    def owner(self, block: int) -> Optional[int]:
        """Return the place of the peer that reads a block from the source; None: all of them are gone, so this node does."""
        for ahead in range(len(self._peers)):
            place = (block + ahead) % len(self._peers)
            if self._peers[place].node not in self.gone:
                return place
        return None

    # From the source

    def _read_source(self) -> None:
        while not self._over:
            block = self._next_own()
            if block is None:
                self._stopped.wait(0.02)
                continue
            self._rate.take(self._folder.row.length(block))
            parts = self._folder.row.stretches(block)
            read = (self._store.read(one.object.name, one.start, one.length, one.object.version) for one in parts)
            self._take(block, b"".join(read))
            with self._lock:
                self.source_bytes += self._folder.row.length(block)

    def _next_own(self) -> Optional[int]:
        """Return a block that this node is to read, and nobody here has begun with."""
        self._impatient = self._impatient or time.monotonic() - self._last_came > PATIENCE_S
        with self._lock:
            for block in self._folder.missing():
                if block in self._taken:
                    continue
                owner = self.owner(block)
                if owner is None or owner == self._own or self._impatient:
                    self._taken.add(block)
                    return block
        return None

    def _take(self, block: int, data: bytes) -> None:
        self._folder.put(block, data)
        self._last_came = time.monotonic()
        self._tell(self._folder.size)

    # From peers

    def _ask_peers(self, share: Sequence[StagingPeer]) -> None:
        """Have from each of these nodes the blocks that it reads, now this one and now that, as they have them."""
        streams: dict[str, PeerStream] = {}
        try:
            while not self._over and not self._impatient:
                asked = [self._ask(peer, streams) for peer in share if peer.node not in self.gone]
                if not asked:
                    return
                if not any(asked):
                    self._stopped.wait(0.02)
        finally:
            for stream in streams.values():
                stream.close()

    def _ask(self, peer: StagingPeer, streams: dict[str, PeerStream]) -> bool:
        """Ask for the next block of a peer; return whether there was one to ask for."""
        place = self._peers.index(peer)
        with self._lock:
            blocks = (block for block in self._folder.missing() if block not in self._taken)
            block = next((block for block in blocks if self.owner(block) == place), None)
            if block is None:
                return False
            self._taken.add(block)
        try:
            self._fetch(peer, block, streams)
        finally:
            with self._lock:
                if not self._folder.has(block):
                    self._taken.discard(block)
        return True

    def _fetch(self, peer: StagingPeer, block: int, streams: dict[str, PeerStream]) -> None:
        for tried in range(_RETRIES):
            try:
                if peer.node not in streams:
                    streams[peer.node] = connect(
                        peer.address, peer.port, self._token, self._node, peer.node, _CONNECT_S
                    )
                    streams[peer.node].wait(_ANSWER_S + HELD_S)
                streams[peer.node].send({"set": self._name, "block": block})
                header, body = streams[peer.node].receive()
                break
            except CorruptFrame:
                self.corrupt.append((block, peer.node))
                if tried + 1 == _RETRIES:
                    return self._lose(peer, streams)
            except (OSError, WireError):
                with contextlib.suppress(KeyError):
                    streams.pop(peer.node).close()
                if tried + 1 == _RETRIES or self._over:
                    return self._lose(peer, streams)
                self._stopped.wait(0.2 * (tried + 1))
        if header.get("gone"):
            return self._lose(peer, streams)
        if body:
            self._rate.take(len(body))
            self._take(block, bytes(body))
            with self._lock:
                self.peer_bytes += len(body)
        return None

    def _lose(self, peer: StagingPeer, streams: dict[str, PeerStream]) -> None:
        """A peer gives nothing: others read its share."""
        with self._lock:
            self.gone.add(peer.node)
        with contextlib.suppress(KeyError):
            streams.pop(peer.node).close()


def _asking(ask: Callable[[Sequence[StagingPeer]], None], share: Sequence[StagingPeer]) -> Callable[[], None]:
    return lambda: ask(share)


class BlockService:
    """What this node gives its peers: blocks of the sets that it stages, or has staged."""

    def __init__(self) -> None:
        self._sets: dict[str, Optional[BlockFolder]] = {}
        self._lock = threading.Lock()
        self.sent_bytes = 0

    def offer(self, name: str, folder: Optional[BlockFolder]) -> None:
        """Give blocks of a set from now on; None: there will be none to have from this node."""
        with self._lock:
            self._sets[name] = folder

    def forget(self, name: str) -> None:
        """It is not known yet whether there are blocks of a set to be had."""
        with self._lock:
            self._sets.pop(name, None)

    def answer(self, peer: str, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Answer a peer: with the block, after some time with nothing, or that there is none to be had."""
        name, block = str(request.get("set")), request.get("block")
        with self._lock:
            known, folder = name in self._sets, self._sets.get(name)
        if known and (folder is None or not isinstance(block, int)):
            return {"gone": True}, b""
        if folder is None:
            time.sleep(HELD_S / 10)
            return {}, b""
        try:
            if not folder.wait(block, HELD_S):  # type: ignore[arg-type]
                return {}, b""
            data, digest = folder.get(block)  # type: ignore[arg-type]
        except (OSError, CordeeError):
            return {"gone": True}, b""
        with self._lock:
            self.sent_bytes += len(data)
        return {"digest": digest}, data
