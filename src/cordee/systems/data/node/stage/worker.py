"""`python -m cordee.systems.data.node.stage.worker`: stages data sets on one node of a run, and gives them to the others.

It reads one JSON object a line and answers in the same way, until its input ends:

| asked | answered |
|---|---|
| `begin`: `node`, `host`, `token`, `claim`, `looks` | `port`, where peers find it |
| `list`: `set`, `from`, `packed`, `prepare`, `out` | `listed`: `key`, `bytes`, `files`; the manifest lies in `out` then |
| `stage`: `sets`, `peers`, `rate`, `lists_again` | `so_far` each second; `seen`: `findings`; `staged` for each set; `done` |
"""

from __future__ import annotations

import json
import queue
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional

from cordee.core.errors import CordeeError, DataError
from cordee.core.parts import load
from cordee.machine.node_tiers import tiers
from cordee.runs.folder import write_atomically
from cordee.systems.data.node.stage import copy
from cordee.systems.data.node.stage.blocks import BlockFolder, BlockRow
from cordee.systems.data.node.stage.claims import StagedSets, bytes_below
from cordee.systems.data.node.stage.fan_out import BlockService, FanOut, StagingPeer, StagingRate
from cordee.systems.data.node.stage.source import StagingSource, source_of
from cordee.systems.data.node.stage.tier import decide
from cordee.wire.peers import PeerListener
from cordee.wire.stores import is_remote
from cordee.wire.stores.local import SourceChanged

_TELL_S = 1.0
_MANIFEST_S = 30.0


class StagingWorker:
    """Does what it is asked, one thing after the other, while peers are answered beside it.

    Args:
        begin: the first line.
    """

    def __init__(self, begin: dict[str, Any]) -> None:
        self._node, self._claim, self._token = begin["node"], begin["claim"], bytes.fromhex(begin["token"])
        self._service = BlockService()
        self._listener = PeerListener(begin["host"], self._token, self._node, self._service.answer)
        self._looks = [(load(part), given) for part, given in begin.get("looks", ())]
        self._stopped, self._rate = threading.Event(), StagingRate(None)
        self._served: list[tuple[StagingSource, copy.StagedCopy]] = []
        say(port=self._listener.port)

    def do(self, asked: dict[str, Any]) -> None:
        """Do one thing; what is wrong with a data set is said of that one."""
        if asked["do"] == "list":
            self._list(asked)
        elif asked["do"] == "stage":
            for wanted in asked["sets"]:
                try:
                    self._stage(wanted, asked)
                except CordeeError as error:
                    self._service.offer(wanted["name"], None)
                    changed = isinstance(error, SourceChanged)
                    about = {"given": str(error.given or ""), "next": error.next or "", "changed": changed}
                    say(staged=wanted["name"], fault=error.text, **about)
                except OSError as error:
                    self._service.offer(wanted["name"], None)
                    text = f"{error.strerror or error}: {error.filename or ''}"
                    say(staged=wanted["name"], fault=text, given=wanted["place"], next="look at this node's disk")
            say(done=True)

    def hear(self, asked: dict[str, Any]) -> None:
        """Know what will be done next: a node whose ranks wait stages what it is at without a limit, too."""
        if asked["do"] == "stage":
            self._rate.bytes_per_s = asked["rate"]

    def stop(self) -> None:
        """End what is under way."""
        self._stopped.set()

    def close(self) -> None:
        """Serve nobody any more."""
        self._listener.close()
        for source, done in self._served:
            copy.served_no_more(source, done)

    def _list(self, asked: dict[str, Any]) -> None:
        try:
            source = source_of(asked["from"], unpack=not asked["packed"])
            document = {**source.document(), "key": source.key(shlex.join(asked["prepare"]))}
            Path(asked["out"]).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(Path(asked["out"]), json.dumps(document))
        except CordeeError as error:
            say(listed=asked["set"], fault=error.text, given=str(error.given or ""), next=error.next or "")
        except OSError as error:
            say(listed=asked["set"], fault=f"it cannot be listed: {error.strerror}", given=asked["from"], next="")
        else:
            size, files = source.bytes, len(source.objects)
            say(listed=asked["set"], key=document["key"], bytes=size, files=files, manifest=asked["out"])

    def _stage(self, wanted: dict[str, Any], asked: dict[str, Any]) -> None:
        began, name = time.monotonic(), wanted["name"]
        manifest = _manifest(Path(wanted["manifest"]))
        source, key = StagingSource.from_document(manifest), manifest["key"]
        if wanted["part"] is not None:
            source = source.part(*wanted["part"])
            key = source.key(shlex.join(wanted["prepare"]))
        there = tiers(wanted["tiers"])
        self._service.forget(name)
        for tier in there:
            here = copy.found(source, key, tier, self._claim) if wanted["to"] in ("auto", tier.kind) else None
            if here is not None:
                if asked["lists_again"]:
                    self._look(name, here.path, key)
                self._offer_what_is_there(name, source, here, wanted)
                self._tell(name, tier.kind, here.path, None, began, "it is there already", 0)
                return
        # Nobody else has anything of a part.
        peers = [StagingPeer(*peer) for peer in asked["peers"] if wanted["part"] is None or peer[0] == self._node]
        alone = all(peer.node == self._node for peer in peers)
        copied = not source.archive or is_remote(source.address) or not alone
        removable = {tier.folder: StagedSets(tier.folder).unused_bytes() for tier in there}
        apart = bool(wanted["prepare"]) and not source.archive
        needed = source.staged_bytes(copied) + source.bytes * apart
        chosen, reason = decide(wanted["to"], needed, there, removable)
        if chosen is None:
            if wanted["to"] != "auto":
                raise DataError(
                    f"it cannot be staged: {reason}", given=wanted["place"], next="make room, or stage less"
                )
            self._service.offer(name, None)
            say(staged=name, tier="shared", path=wanted["place"], bytes=source.bytes, source_bytes=0, peer_bytes=0)
            return
        fan_out: list[FanOut] = []

        def fill(blocks: BlockFolder) -> None:
            self._service.offer(name, blocks)
            fan_out.append(
                FanOut(name, source.store, blocks, self._node, peers, self._token, self._rate, self._stopped)
            )
            ended = threading.Event()
            threading.Thread(target=_tell_so_far, args=(name, blocks, fan_out[0], ended), daemon=True).start()
            try:
                fan_out[0].run()
            finally:
                ended.set()

        done = copy.put(
            source,
            key,
            chosen,
            self._claim,
            fill if copied else None,
            lambda target: self._make_ready(name, target, key, asked, wanted),
            apart=apart,
            lists_again=bool(asked["lists_again"]),
            waits=lambda: self._service.offer(name, None),
        )
        if asked["lists_again"] and not done.new:  # another process has brought it meanwhile
            self._look(name, done.path, key)
        if done.blocks is None:
            self._offer_what_is_there(name, source, done, wanted)
        self._served.append((source, done))
        self._tell(
            name, chosen.kind, done.path, fan_out[0] if fan_out else None, began, reason, source.bytes * done.new
        )

    def _make_ready(self, name: str, target: Path, key: str, asked: dict[str, Any], wanted: dict[str, Any]) -> None:
        """Look at what was brought, then let the job's own command prepare it."""
        if asked["lists_again"]:
            self._look(name, target, key)
        copy.prepare(wanted["prepare"], target)

    def _look(self, name: str, target: Path, key: str) -> None:
        """Have looked at what was staged, and tell what is said of it.

        Raises:
            DataError: it is refused.
        """
        findings = [finding for look, given in self._looks for finding in look(target, key, given)]
        for finding in findings:
            if finding.severity == "error":
                raise DataError(finding.text, given=name, next=finding.next)
        if findings:
            say(seen=name, findings=[finding.document() for finding in findings])

    def _offer_what_is_there(
        self, name: str, source: StagingSource, here: copy.StagedCopy, wanted: dict[str, Any]
    ) -> None:
        """Give peers what was staged before, unless it is something else than what the source has."""
        if source.archive or wanted["prepare"]:
            self._service.offer(name, None)
            return
        below = here.path if source.is_folder else here.path.parent
        self._service.offer(name, BlockFolder.whole_one(below, BlockRow(source.objects)))

    def _tell(
        self,
        name: str,
        tier: str,
        path: Path,
        fan_out: Optional[FanOut],
        began: float,
        reason: str,
        read: int,
    ) -> None:
        say(
            staged=name,
            tier=tier,
            path=str(path),
            bytes=bytes_below(path),
            source_bytes=fan_out.source_bytes if fan_out is not None else read,
            peer_bytes=fan_out.peer_bytes if fan_out is not None else 0,
            seconds=round(time.monotonic() - began, 3),
            reason=reason,
            corrupt=[list(one) for one in fan_out.corrupt] if fan_out is not None else [],
            gone=sorted(fan_out.gone) if fan_out is not None else [],
        )


def say(**said: Any) -> None:
    """Answer one line."""
    with _saying:
        print(json.dumps(said), flush=True)


_saying = threading.Lock()


def _manifest(path: Path) -> dict[str, Any]:
    """Return what another node has listed; a shared file system may show it a while later."""
    until = time.monotonic() + _MANIFEST_S
    while True:
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            return found
        except (OSError, ValueError) as error:
            if time.monotonic() > until:
                raise DataError(
                    f"this node does not see what is to be staged: {error}",
                    given=str(path),
                    next="is the run's folder on storage that all nodes share?",
                ) from error
        time.sleep(0.2)


def _tell_so_far(name: str, blocks: BlockFolder, fan_out: FanOut, ended: threading.Event) -> None:
    while not ended.wait(_TELL_S):
        say(so_far=name, bytes=blocks.size, of=blocks.row.bytes, source_bytes=fan_out.source_bytes)


def main() -> int:
    """Serve until the input ends."""
    worker = StagingWorker(json.loads(sys.stdin.readline()))
    waiting: queue.Queue[Optional[dict[str, Any]]] = queue.Queue()

    def work() -> None:
        while True:
            asked = waiting.get()
            if asked is None:
                return
            worker.do(asked)

    thread = threading.Thread(target=work)
    thread.start()
    for line in sys.stdin:
        asked = json.loads(line)
        worker.hear(asked)
        waiting.put(asked)
    worker.stop()
    waiting.put(None)
    thread.join()
    worker.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
