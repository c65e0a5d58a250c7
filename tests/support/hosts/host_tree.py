"""Fixture trees of /proc, /sys and /etc: a host as its kernel would show it, for checks that are given a `root`."""

from __future__ import annotations

from pathlib import Path


class HostTree:
    """A healthy host of two sockets, on which faults can be written.

    Args:
        folder: where the tree goes; give it to checks as `root`, or to tasks as CORDEE_HOST_ROOT.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.write("proc/sys/kernel/osrelease", "5.14.0-427.13.1.el9_4.x86_64")
        self.write("etc/os-release", 'NAME="Rocky Linux"\nPRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"')
        self.write(
            "proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 7713 64-Core Processor\nmicrocode\t: 0xa0011d5"
        )
        self.write("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never")
        self.memory()
        self.processors()
        self.nvidia_driver("550.54.15")
        self.process(1, "systemd")
        self.write("sys/class/net/lo/type", "772")
        self.memory_module("mc0", 0)
        self.memory_module("mc0", 1)
        self.mount("/", "xfs", "/dev/sda1", first=True)

    def write(self, path: str, content: str) -> Path:
        """Write a file of the tree as the kernel would show it, with a newline at its end."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        # At once, as the kernel does: whoever reads meanwhile sees the old or the new.
        partial = target.with_name(f".{target.name}.partial")
        partial.write_text(content + "\n")
        partial.rename(target)
        return target

    def memory(self, total_kb: int = 263_000_000, available_kb: int = 250_000_000, corrupted_kb: int = 0) -> None:
        """Set the memory, in kB."""
        self.write(
            "proc/meminfo",
            f"MemTotal: {total_kb} kB\nMemFree: {available_kb} kB\nMemAvailable: {available_kb} kB\n"
            f"HardwareCorrupted: {corrupted_kb} kB",
        )

    def processors(self, sockets: int = 2, cores: int = 4, numa_nodes: int = 2, governor: str = "performance") -> None:
        """Set the processors: `cores` per socket, one thread each."""
        total = sockets * cores
        self.write("sys/devices/system/cpu/online", f"0-{total - 1}")
        self.write("sys/devices/system/node/online", f"0-{numa_nodes - 1}")
        for cpu in range(total):
            folder = f"sys/devices/system/cpu/cpu{cpu}"
            self.write(f"{folder}/topology/physical_package_id", str(cpu // cores))
            self.write(f"{folder}/topology/core_id", str(cpu % cores))
            self.write(f"{folder}/cpufreq/scaling_governor", governor)

    def nvidia_driver(self, version: str) -> None:
        """Set the version of NVIDIA's kernel module, in that module's own words."""
        text = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 11.4.1"
        self.write("proc/driver/nvidia/version", text)

    def memory_module(self, controller: str, module: int, corrected: int = 0, uncorrected: int = 0) -> None:
        """Set what EDAC has counted for one memory module."""
        folder = f"sys/devices/system/edac/mc/{controller}"
        self.write(f"{folder}/dimm{module}/dimm_label", f"P0_DIMM_{'ABCDEFGH'[module]}1")
        self.write(f"{folder}/dimm{module}/dimm_ce_count", str(corrected))
        self.write(f"{folder}/dimm{module}/dimm_ue_count", str(uncorrected))
        for kind in ("ce", "ue"):
            counts = [int(path.read_text()) for path in self.root.glob(f"{folder}/dimm*/dimm_{kind}_count")]
            self.write(f"{folder}/{kind}_count", str(sum(counts)))

    def infiniband(
        self,
        device: str,
        *,
        port: int = 1,
        state: str = "4: ACTIVE",
        physical: str = "5: LinkUp",
        rate: str = "200 Gb/sec (4X HDR)",
        layer: str = "InfiniBand",
        **counters: int,
    ) -> None:
        """Set a port of InfiniBand or RoCE and its counters."""
        folder = f"sys/class/infiniband/{device}/ports/{port}"
        for name, value in (("state", state), ("phys_state", physical), ("rate", rate), ("link_layer", layer)):
            self.write(f"{folder}/{name}", value)
        healthy = {"symbol_error": 12, "link_downed": 1, "port_rcv_errors": 0, "port_xmit_discards": 0}
        for name, count in {**healthy, **counters}.items():
            self.write(f"{folder}/counters/{name}", str(count))

    def interface(
        self,
        name: str,
        *,
        state: str = "up",
        carrier: int = 1,
        speed_mbit: int = 200_000,
        flags: int = 0x1003,
        **counters: int,
    ) -> None:
        """Set a network interface with hardware behind it, and its counters."""
        folder = f"sys/class/net/{name}"
        values = {"operstate": state, "carrier": carrier, "speed": speed_mbit, "flags": hex(flags), "type": 1}
        for key, value in values.items():
            self.write(f"{folder}/{key}", str(value))
        self.write(f"{folder}/device/vendor", "0x17db")
        self.write(f"{folder}/carrier_down_count", str(counters.pop("carrier_down_count", 0)))
        for key, count in {"rx_errors": 0, "rx_crc_errors": 0, "rx_dropped": 0, **counters}.items():
            self.write(f"{folder}/statistics/{key}", str(count))

    def process(
        self,
        pid: int,
        name: str,
        *,
        state: str = "S",
        user: int = 0,
        ticks: int = 10,
        place: str = "0",
        switches: int = 5,
    ) -> None:
        """Set a process as /proc shows it."""
        numbers = [1, pid, pid, 0, -1, 0, 0, 0, 0, 0, ticks, 0, 0, 0, 20, 0, 1, 0, 1000 + pid, 0, 0]
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) {state} {' '.join(map(str, numbers))}")
        self.write(
            f"proc/{pid}/status",
            f"Name:\t{name}\nUid:\t{user}\t{user}\t{user}\t{user}\nvoluntary_ctxt_switches:\t{switches}\n"
            "nonvoluntary_ctxt_switches:\t0",
        )
        self.write(f"proc/{pid}/wchan", place)
        self.write(f"proc/{pid}/comm", name)

    def mount(self, point: str, kind: str, source: str, options: str = "rw", first: bool = False) -> None:
        """Mount a file system on the tree."""
        path = self.root / "proc/self/mountinfo"
        before = "" if first or not path.exists() else path.read_text()
        self.write(
            "proc/self/mountinfo",
            f"{before}30 1 0:25 / {point} {options},relatime shared:1 - {kind} {source} {options}",
        )
