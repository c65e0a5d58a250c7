"""The audit trail: every action is written down before it is done and again when its outcome is known; nothing is ever
changed or removed."""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError
from cordee.core.units import parse_utc, utc_text
from cordee.systems.vetting.fleet.cluster import SlurmNode
from cordee.systems.vetting.fleet.proposals import Proposal

SCHEMA = "cordee.actions/1"
PHASES = ("open", "done", "failed", "unknown")
_KEPT = ("action", "node", "reason", "rule", "kind", "check", "gpu", "first_step", "drain_id", "why")


@dataclass(frozen=True)
class Deed:
    """One action of ours, from its intent and its outcome.

    Attributes:
        at: when it was begun, UTC epoch seconds.
        phase: `open` (begun, outcome not written: we were stopped in between), `done`, `failed`, or `unknown` (it was
            begun, and nobody can say any more how it ended).
    """

    id: str
    at: float
    action: str
    node: str
    phase: str = "open"
    reason: str = ""
    rule: str = ""
    kind: str = "soft"
    check: str = ""
    gpu: str = ""
    first_step: str = ""
    drain_id: str = ""
    why: str = ""
    said: str = ""

    def ended(self, phase: str, said: str) -> Deed:
        """Return the deed with its outcome."""
        return replace(self, phase=phase, said=said)


class Audit:
    """The trail in one file of JSON lines.

    Args:
        path: of the file; its folder is made when it is first written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock that keeps other processes from acting at the same time.

        Raises:
            CordeeError: another one has it, it cannot be had, or others can write into the trail.
        """
        self.require_ours()
        lock = self.path.with_suffix(".lock")
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise CordeeError(f"the lock cannot be made: {error.strerror}", given=str(lock)) from None
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
                raise CordeeError(
                    f"another `cordee nodes act` is at work: {holder}", given=str(lock), next="end it, or wait for it"
                ) from None
            except OSError as error:
                raise CordeeError(f"the lock cannot be had: {error.strerror}", given=str(lock)) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def require_ours(self) -> None:
        """Refuse a trail that others can write into.

        Raises:
            CordeeError: they can.
        """
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o022:
            raise CordeeError(
                "others can write into the audit trail, so it proves nothing",
                given=str(self.path),
                next="keep it where only you can write, with --audit FILE",
            )

    def deeds(self) -> list[Deed]:
        """Return all deeds, the oldest first; torn or foreign lines are left out.

        Raises:
            CordeeError: the trail is there but cannot be read.
        """
        found: dict[str, Deed] = {}
        for entry in self.entries():
            try:
                if entry["phase"] == "intent":
                    texts = {key: str(entry.get(key) or "") for key in _KEPT}
                    found[entry["id"]] = Deed(entry["id"], parse_utc(entry["at"]), **texts)
                elif entry["id"] in found and entry["phase"] in PHASES:
                    found[entry["id"]] = found[entry["id"]].ended(entry["phase"], str(entry.get("said") or ""))
            except (KeyError, TypeError, ValueError):
                continue
        return sorted(found.values(), key=lambda deed: deed.at)

    def entries(self) -> list[dict[str, Any]]:
        """Return the lines of the trail as they are.

        Raises:
            CordeeError: it cannot be read.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CordeeError(f"the audit trail cannot be read: {error.strerror}", given=str(self.path)) from None
        found = []
        for line in content.split(b"\n"):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and entry.get("schema") == SCHEMA:
                found.append(entry)
        return found

    def begin(self, proposal: Proposal) -> Deed:
        """Write down what is about to be done.

        Raises:
            CordeeError: it cannot be written; then nothing may be done.
        """
        now = time.time()
        texts = {key: getattr(proposal, key) for key in _KEPT}
        deed = Deed(secrets.token_hex(8), now, **texts)
        vettings = [fault.vetting for fault in proposal.evidence]
        self._append({"id": deed.id, "at": utc_text(now), "phase": "intent", **texts, "vettings": vettings})
        return deed

    def end(self, deed: Deed, phase: str, said: str) -> None:
        """Write down how it ended: `done`, `failed` or `unknown`.

        Raises:
            CordeeError: it cannot be written.
        """
        entry = {"id": deed.id, "at": utc_text(), "phase": phase, "action": deed.action, "node": deed.node}
        self._append({**entry, "said": said[:2000]})

    def _append(self, entry: dict[str, Any]) -> None:
        full = {"schema": SCHEMA, **entry, "by": getpass.getuser(), "host": socket.gethostname()}
        line = json.dumps(full, separators=(",", ":")).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = b"\n" + line  # the last line is torn; this one is not
                os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise CordeeError(
                f"the audit trail cannot be written: {error.strerror}", given=str(self.path), next="nothing was done"
            ) from None


def settled(deed: Deed, state: SlurmNode | None) -> tuple[str, str]:
    """Return how an open deed ended, by what the scheduler says of its node: the phase and why."""
    if deed.action == "drain":
        if state is not None and state.drained and state.reason == deed.reason:
            return "done", "found done: the node is drained with our reason"
        return "failed", "found not done: the node is not drained with our reason"
    if deed.action == "resume":
        if state is not None and not state.drained:
            return "done", "found done: the node is not drained"
        return "failed", "found not done: the node is still drained"
    if deed.action in ("ticket", "vet"):
        return "failed", "the outcome was not written; it may be done again"
    return "unknown", "the outcome was not written; it is not done again"
