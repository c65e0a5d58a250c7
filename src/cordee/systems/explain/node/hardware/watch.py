"""Beside the ranks of a node: faults of its hardware and kernel, told as findings of the run within seconds."""

from __future__ import annotations

import os
from typing import Callable, Mapping, Optional, Sequence

from cordee.control.agent.companions import Companion, CompanionHost
from cordee.control.agent.orders import Handlers
from cordee.core.backends import backend_on_node
from cordee.core.clock import monotonic
from cordee.machine import sysfs
from cordee.machine.gpus.model import Gpu
from cordee.machine.gpus.presence import gpu_device_file
from cordee.machine.gpus.xid import DriverMessage, xid
from cordee.machine.kernel_log import KernelLogClosed, KernelLogTail
from cordee.machine.mounts import LOCAL_KINDS, Mount, mount_of, read_mounts
from cordee.machine.tasks.task import Task, TaskExit
from cordee.runs.folder import say
from cordee.runs.lane import Lane, RepeatedLook
from cordee.runs.plan import RunPlan
from cordee.systems.explain.node.hardware.causes import Causes, Seen
from cordee.systems.explain.node.hardware.counters import GpuWatch, NodeCounters
from cordee.systems.explain.node.hardware.kernel import KernelWords, of_driver
from cordee.systems.explain.node.used_paths import used_paths
from cordee.wire.messages import NodeFinding

_COUNTERS_EVERY_S, _SAMPLES = 10.0, 10
_MOUNTS_EVERY_S, _MOUNT_PATIENCE_S = 60.0, 20.0
_MOST_XIDS, _MOST_FAILURES = 100, 10
_UNWATCHED = "unwatched-hardware"
_READ_IT = "let users read it (sysctl kernel.dmesg_restrict=0), or look at it yourself when ranks fail"


class HardwareWatch(Companion):
    """Looks every second at the kernel log, every ten (or ten samples, if those are nearer) at counters, every minute whether file systems answer; see Companion.

    Files are read in a thread, and file systems asked by processes: what hangs holds up neither the agent nor its end. What
    is there when the watch begins is the base from which counters are told.
    """

    def __init__(self, plan: RunPlan, node: str) -> None:
        super().__init__(plan, node)
        self._root = os.environ.get("CORDEE_HOST_ROOT") or "/"
        several = backend_on_node(plan.backend, plan.backend_part).abilities.several_machines
        self._causes = Causes(node, not several)
        self._host: Optional[CompanionHost] = None
        self._files = NodeFiles(self._root, min(_COUNTERS_EVERY_S, _SAMPLES * plan.sampling.interval_s))
        self._lane = Lane("cordee-hardware")
        self._looking = RepeatedLook(self._lane, self._files.look, self._take, self._failed)
        self._gpus: dict[str, GpuWatch] = {}
        self._told: tuple[Sequence[Gpu], Mapping[str, Sequence[int]]] = (), {}
        self._fresh = False
        self._xids: list[tuple[str, int]] = []
        self._failures: set[str] = set()
        self._mounts: Optional[_Mounts] = None

    def attach(self, host: CompanionHost) -> Handlers:
        if self.plan.sampling.hardware:
            self._host = host
            self._mounts = _Mounts(self.plan, self._root, host, self._causes.take)
            self._looking.begin()
        return {}

    def look(self, now: float) -> None:
        if self._host is None or self._mounts is None:
            return
        if self._fresh:
            self._fresh = False
            self._look_at_gpus()
        self._look_at_xids()
        self._files.ranks = {str(pid): [rank] for rank, pid in self._host.pids().items()}
        self._looking.begin()
        self._mounts.look(now)

    def gpus(
        self, gpus: Sequence[Gpu], ranks: Mapping[str, Sequence[int]], xids: Sequence[tuple[str, int]] = ()
    ) -> None:
        self._files.on_gpus = {uuid: list(on) for uuid, on in ranks.items()}
        self._xids = [*self._xids, *xids][-_MOST_XIDS:]
        if gpus:
            self._told, self._fresh = (gpus, ranks), True

    def findings(self) -> tuple[NodeFinding, ...]:
        return self._causes.found()

    async def close(self) -> None:
        self._lane.submit(self._files.close)

    def _look_at_gpus(self) -> None:
        gpus, ranks = self._told
        for gpu in gpus:
            place = str(gpu.index)
            known = self._gpus.get(place)
            if known is None:
                known = self._gpus[place] = GpuWatch(gpu)
            for seen in known.look(gpu, ranks.get(gpu.uuid or "", ())):
                self._causes.take(seen)
        self._files.gpus = {**self._files.gpus, **{gpu.pci_bus_id: gpu for gpu in gpus if gpu.pci_bus_id}}

    def _look_at_xids(self) -> None:
        """Take the XIDs that the driver tells by itself where the kernel log, which has their words, is closed."""
        xids, self._xids = self._xids, []
        known = {gpu.uuid: gpu for gpu in self._files.gpus.values()}
        for uuid, number in xids if self._files.closed else ():
            gpu = known.get(uuid)
            said = DriverMessage(xid(number), (gpu and gpu.pci_bus_id) or uuid, False, "")
            self._causes.take(of_driver(said, "", gpu, self._files.on_gpus))

    def _take(self, seen: list[Seen]) -> None:
        for one in seen:
            self._causes.take(one)

    def _failed(self, error: BaseException) -> None:
        text = f"looking at the hardware failed: {type(error).__name__}: {error}"
        if text not in self._failures and len(self._failures) < _MOST_FAILURES:
            self._failures.add(text)
            say(f"cordee agent {self.node}: {text}")


class NodeFiles:
    """The kernel log and the counters of /proc and /sys; `look` runs in a thread, and begins at its first call."""

    def __init__(self, root: str, every_s: float) -> None:
        self._root, self._every_s = root, every_s
        self._tail: Optional[KernelLogTail] = None
        self._counters: Optional[NodeCounters] = None
        self._words = KernelWords("")
        self._due = 0.0
        self.ranks: dict[str, list[int]] = {}
        self.on_gpus: dict[str, list[int]] = {}
        self.gpus: dict[str, Gpu] = {}
        self.closed = False

    def look(self) -> list[Seen]:
        seen: list[Seen] = []
        now = monotonic()
        if self._counters is None:
            self._words = KernelWords(sysfs.text("/proc/self/cgroup") or "")
            self._counters, self._due = NodeCounters(self._root), now + self._every_s
            try:
                self._tail = KernelLogTail(self._root)
            except KernelLogClosed as closed:
                seen += self._unread(closed)
        if self._tail is not None:
            seen += self._words.read(self._tail.new_lines(), self.gpus, {**self.ranks, **self.on_gpus})
            if self._tail.passed_over:
                text = "the kernel log was written faster than it is read: some lines were passed over"
                seen.append(Seen(_UNWATCHED, "info", "", "flood", text, "look at the node's kernel log", total=1))
        if now >= self._due:
            self._due = now + self._every_s
            seen += self._counters.look()
        return seen

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _unread(self, closed: KernelLogClosed) -> list[Seen]:
        """Return that the log is closed, where it would tell of more than the machine of a desk."""
        assert self._counters is not None
        self.closed = True
        if not self._counters.ports and gpu_device_file(self._root, {}) is None:
            return []
        text = f"kills for want of memory, hung tasks and I/O errors are not seen: {closed}"
        return [Seen(_UNWATCHED, "info", "", "kernel-log", text, _READ_IT, total=1, shared=True)]


class _Mounts:
    """Asks the file systems of other machines that the run uses, each by a process that is left behind where it hangs."""

    def __init__(self, plan: RunPlan, root: str, host: CompanionHost, take: Callable[[Seen], None]) -> None:
        self._plan, self._root, self._host, self._take = plan, root, host, take
        self._due: dict[str, float] = {}
        self._hung: dict[str, int] = {}
        self._asked = 0
        self._mounts: Optional[list[Mount]] = None

    def look(self, now: float) -> None:
        if self._mounts is None:
            known = read_mounts(self._root)
            found = {mount_of(path, known) for path in used_paths(self._plan)}
            self._mounts = [mount for mount in found if mount is not None and mount.kind not in LOCAL_KINDS]
        for mount in self._mounts:
            if now >= self._due.get(mount.point, 0.0):
                self._due[mount.point] = now + _MOUNTS_EVERY_S * 2 ** min(6, self._hung.get(mount.point, 0))
                self._ask(mount)

    def _ask(self, mount: Mount) -> None:
        self._asked += 1

        def ended(task: TaskExit) -> None:
            if task.reason in ("deadline", "stuck"):
                self._hung[mount.point] = self._hung.get(mount.point, 0) + 1
                text = f"{mount.point} ({mount.kind}) does not answer within {_MOUNT_PATIENCE_S:.0f} s"
                what = "ask who runs that file system; ranks that use it wait"
                facts = {"mount": mount.point, "kind_of_mount": mount.kind}
                self._take(
                    Seen("hardware-file-system", "warn", mount.source, "hangs", text, what, shared=True, facts=facts)
                )
            elif task.code == 0:
                self._hung.pop(mount.point, None)

        task = Task(
            f"mount-{self._asked}",
            ("stat", "-f", mount.point),
            dict(os.environ),
            "/",
            deadline_s=_MOUNT_PATIENCE_S,
            group="mounts",
        )
        self._host.watched.run_task(task, ended)
