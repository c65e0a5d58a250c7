"""Which lines of the kernel log tell of broken or stalled hardware, and what to do about each.

Texts are those of Linux (mm/oom_kill.c, kernel/hung_task.c, kernel/watchdog.c, kernel/rcu/tree_stall.h, drivers/pci/pcie/aer.c,
mm/memory-failure.c, block/blk-core.c, fs/buffer.c, drivers/nvme, net/sched/sch_generic.c, net/sunrpc/clnt.c, fs/ext4/super.c,
fs/xfs) and of the drivers of Lustre, NVIDIA, AMD and Mellanox.
"""

from __future__ import annotations

import re
from typing import Iterable, Iterator, Mapping, NamedTuple, Optional

from cordee.machine.gpus.model import Gpu
from cordee.machine.gpus.xid import DriverMessage, driver_message
from cordee.systems.explain.node.hardware.causes import Seen

_MOST_CHARACTERS = 300
_NETWORK = "look at cable, transceiver and switch port; leave the node out if it comes again"
_DISK = "look at the disk (smartctl, nvme smart-log); do not write checkpoints there"
_SERVER = "ask who runs that file system; ranks that use it wait"
_REBOOT = "leave the node out and have it rebooted"


class KernelRule(NamedTuple):
    """One kind of line.

    Attributes:
        rule, severity, next, shared: of the finding.
        kind: of the cause.
        pattern: may name a `device` and `what`, the words that are told.
        text: what is told where the pattern names no `what`.
        example: a line that it is about.
    """

    rule: str
    severity: str
    kind: str
    pattern: re.Pattern[str]
    text: str
    next: str
    example: str
    shared: bool = False


def _rule(
    rule: str, severity: str, kind: str, pattern: str, text: str, what: str, example: str, **more: bool
) -> KernelRule:
    return KernelRule(rule, severity, kind, re.compile(pattern), text, what, example, **more)


# The first that is found counts. Of a machine check's status bit 63 says that it holds, bit 61 that it was not corrected
# (Intel's Software Developer's Manual, volume 3, 17.3.2.2).
KERNEL_RULES = (
    _rule("hardware-gpu", "error", "amdgpu",
          r"amdgpu (?P<device>[0-9a-f:.]+): .*?(?P<what>GPU reset\b|ring \S+ timeout|uncorrectable (?:hardware )?errors? detected)",
          "the driver reports an error", "restart the program; reset the GPU, and leave the node out if it comes again",
          "amdgpu 0000:03:00.0: amdgpu: ring gfx timeout, signaled seq=81, emitted seq=83"),
    _rule("hardware-pcie", "error", "uncorrected",
          r"(?P<device>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): PCIe Bus Error: severity=(?P<what>Uncorrect(?:ed|able) \([^)]*\))",
          "PCIe error", "reseat or replace the device; leave the node out",
          "nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)"),
    _rule("hardware-pcie", "warn", "corrected",
          r"(?P<device>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): PCIe Bus Error: severity=(?P<what>Correct(?:ed|able))",
          "PCIe error", "nothing now: it was repeated; where it is told again, reseat the device",
          "pcieport 0000:00:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"),
    _rule("hardware-memory", "error", "poisoned",
          r"Memory failure: 0x[0-9a-f]+: (?P<what>.{1,120})|Uncorrected hardware memory error",
          "memory is broken", "have the memory module replaced; leave the node out",
          "Memory failure: 0x10da3c0: recovery action for dirty LRU page: Recovered"),
    _rule("hardware-processor", "error", "uncorrected",
          r"\[Hardware Error\]: (?P<device>CPU \d+): Machine Check.*? (?P<what>Bank \d+: [abef][0-9a-f]{15}\b)",
          "machine check", "have the processor and its memory looked at; leave the node out",
          "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400"),
    _rule("hardware-processor", "warn", "corrected",
          r"\[Hardware Error\]: (?P<device>CPU \d+): Machine Check.*? (?P<what>Bank \d+: [89cd][0-9a-f]{15}\b)",
          "machine check", "nothing now: it was corrected; where it is told again, have the node looked at",
          "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 8: 8c00004000010090"),
    _rule("hardware-oom", "error", "killed",
          r"[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<device>[^)]*)\)",
          "killed by the kernel for want of memory", "ask for more memory, or use less: `cordee advise` names the amount",
          "Memory cgroup out of memory: Killed process 4711 (python) total-vm:9102848kB, anon-rss:4194304kB, UID:1000"),
    _rule("hardware-hung-task", "warn", "blocked",
          r"INFO: task (?P<device>\S+?):\d+ (?P<what>blocked for more than \d+ seconds)",
          "blocked", "it waits in the kernel, mostly for a file system or a driver: look at the lines beside it",
          "INFO: task python:4711 blocked for more than 122 seconds."),
    _rule("hardware-lockup", "error", "lockup",
          r"(?P<what>BUG: soft lockup - CPU#\d+ stuck for \d+s|hard LOCKUP|rcu: INFO: rcu_\w+ (?:self-)?detected stalls?)",
          "a processor does not go on", _REBOOT,
          "watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python:4711]"),
    _rule("hardware-file-system", "warn", "silent",
          r"nfs: server (?P<device>\S+) (?P<what>not responding)", "does not answer", _SERVER,
          "nfs: server 10.0.0.1 not responding, still trying", shared=True),
    _rule("hardware-file-system", "warn", "silent",
          r"Lustre: .*?(?P<what>Connection to (?P<device>\S+) \(at [^)]*\) was lost)", "does not answer", _SERVER,
          "Lustre: scratch-OST0001-osc-ffff9a: Connection to scratch-OST0001 (at 10.0.0.1@o2ib) was lost; in progress operations",
          shared=True),
    _rule("hardware-file-system", "error", "evicted",
          r"LustreError: .*?(?P<what>This client was evicted by (?P<device>[^\s;]+))", "evicted", _SERVER,
          "LustreError: 167-0: scratch-MDT0000-mdc-ffff9a: This client was evicted by scratch-MDT0000; in progress operations"),
    _rule("hardware-file-system", "error", "damaged",
          r"EXT4-fs error \(device (?P<device>[^)]+)\)|EXT4-fs \((?P<device2>[^)]+)\): Remounting filesystem read-only",
          "the file system is damaged", _DISK, "EXT4-fs error (device sda1): ext4_find_entry:1463: inode #2: comm python"),
    _rule("hardware-file-system", "error", "damaged",
          r"XFS \((?P<device>[^)]+)\): .*?(?P<what>metadata I/O error|[Cc]orruption|[Ff]ilesystem has been shut down|log I/O error)",
          "the file system is damaged", _DISK, 'XFS (nvme0n1): metadata I/O error in "xfs_trans_read_buf_map" at daddr 0x40'),
    _rule("hardware-io", "error", "error",
          r"(?P<what>critical medium error|critical target error|I/O error), dev (?P<device>(?!loop|fd\d|sr\d|zram)[^,\s]+)",
          "I/O error", _DISK, "blk_update_request: I/O error, dev sda, sector 123456 op 0x0:(READ) flags 0x0"),
    _rule("hardware-io", "error", "error",
          r"Buffer I/O error on dev(?:ice)? (?P<device>(?!loop|fd\d|sr\d|zram)[^,\s]+)", "I/O error", _DISK,
          "Buffer I/O error on dev dm-0, logical block 81, async page read"),
    _rule("hardware-io", "error", "timeout",
          r"nvme (?P<device>nvme\d+): (?P<what>I/O .*?timeout|controller is down)", "timeout", _DISK,
          "nvme nvme0: I/O 12 QID 3 timeout, aborting"),
    _rule("hardware-link", "error", "stuck",
          r"NETDEV WATCHDOG: (?P<device>[^\s:]+)", "the network interface does not send", _NETWORK,
          "NETDEV WATCHDOG: ib0 (mlx5_core): transmit queue 3 timed out"),
    _rule("hardware-link", "error", "health",
          r"mlx5_core (?P<device>[0-9a-f:.]+): .*?(?P<what>device's health compromised|health poll failed)",
          "the adapter's firmware does not answer", _NETWORK,
          "mlx5_core 0000:3b:00.0: poll_health:739:(pid 0): device's health compromised - reached miss count"),
    _rule("hardware-link", "error", "down",
          r"(?:mlx\d_core|cxi_\w+|ice|bnxt_en|i40e|ixgbe|igb|hfi1|irdma) (?P<device>\S+?):? .*\b[Ll]ink (?:is )?[Dd]own",
          "the link went down", _NETWORK, "mlx5_core 0000:3b:00.0 ib0: Link down"),
)  # fmt: skip
_CONSTRAINED = re.compile(r"oom-kill:constraint=CONSTRAINT_MEMCG,.*task_memcg=(?P<group>[^,]+),.*?pid=(?P<pid>\d+)")
_JOB = re.compile(r"(.*/job_\d+)(?:/|$)")


class KernelWords:
    """Reads lines; those of programs of other jobs that the kernel killed in control groups of their own are left out.

    Args:
        cgroups: this process's, as /proc/self/cgroup has it.
    """

    def __init__(self, cgroups: str) -> None:
        paths = [line.split(":", 2)[2] for line in cgroups.splitlines() if line.count(":") > 1]
        jobs = [(_JOB.match(path), path) for path in paths]
        self._own = [job[1] if job is not None else path for job, path in jobs]
        self._foreign: set[str] = set()

    def read(self, lines: Iterable[str], gpus: Mapping[str, Gpu], ranks: Mapping[str, list[int]]) -> Iterator[Seen]:
        """Yield what lines tell.

        Args:
            gpus: by PCI address.
            ranks: by GPU's UUID, and by pid.
        """
        for line in lines:
            said = driver_message(line)
            if said is not None:
                yield of_driver(said, line, gpus.get(said.address), ranks)
            elif "oom-kill:" in line:
                self._killed(line)
            else:
                seen = self._of_rule(line, ranks)
                if seen is not None:
                    yield seen

    def _killed(self, line: str) -> None:
        found = _CONSTRAINED.search(line)
        if found is None or not self._own:
            return
        if not any(own == "/" or (found["group"] + "/").startswith(own + "/") for own in self._own):
            self._foreign = {*list(self._foreign)[-16:], found["pid"]}

    def _of_rule(self, line: str, ranks: Mapping[str, list[int]]) -> Optional[Seen]:
        for rule in KERNEL_RULES:
            found = rule.pattern.search(line)
            if found is None:
                continue
            named = found.groupdict()
            pid, device = named.get("pid"), named.get("device") or named.get("device2") or ""
            if pid in self._foreign:
                return None
            facts = {"ranks": ranks.get(pid or "", []), "line": line[:_MOST_CHARACTERS]}
            text = named.get("what") or rule.text
            return Seen(rule.rule, rule.severity, device, rule.kind, text, rule.next, shared=rule.shared, facts=facts)
        return None


def tells(line: str) -> bool:
    """Return whether a line is one of those that the watch tells."""
    return driver_message(line) is not None or any(rule.pattern.search(line) for rule in KERNEL_RULES)


def of_driver(said: DriverMessage, line: str, gpu: Optional[Gpu], ranks: Mapping[str, list[int]]) -> Seen:
    """Return what the driver has said of a GPU."""
    number, of_program = said.meaning.number, said.meaning.scope == "user"
    name = f"{'SXID' if said.switch else 'XID'} {number}"
    severity = "error" if said.meaning.status == "fail" else "warn"
    device = (gpu.uuid if gpu is not None else None) or said.address
    about = str(gpu) if gpu is not None else f"{'NVSwitch' if said.switch else 'GPU'} at {said.address}"
    fault = ": mostly the program's own fault" if of_program else ""
    facts = {
        "ranks": list(ranks.get(device, [])),
        "pci_bus_id": said.address,
        "xid": number,
        "scope": said.meaning.scope,
        "line": line[:_MOST_CHARACTERS],
    }
    text = f"{name}, {said.meaning.name}{fault}"
    return Seen("hardware-xid", severity, device, name, text, said.meaning.action, about, facts=facts)
