"""What the kernel shows of Lustre, NFS and cgroups, written as its sources and manuals describe it.

Lustre: chapter "Lustre Parameters" of the Lustre Operations Manual, and lprocfs_stats_seq_show of lustre/obdclass; 2.12 has
counts alone for most operations, 2.15 times in `[usecs]` and two more lines at the top. NFS: show_stats in
fs/proc_namespace.c, nfs_show_stats in fs/nfs/super.c, rpc_clnt_show_stats in net/sunrpc/stats.c, and `man 5 nfs` of nfs-utils.
"""

from __future__ import annotations

from pathlib import Path

LUSTRE_2_12 = """snapshot_time             {time}.123456789 secs.nsecs
read_bytes                {reads} samples [bytes] 4096 4194304 {read_bytes}
write_bytes               {writes} samples [bytes] 1 4194304 {write_bytes}
ioctl                     3 samples [regs]
open                      {opens} samples [regs]
close                     {opens} samples [regs]
getattr                   {stats} samples [regs]
inode_permission          70000 samples [regs]
"""
LUSTRE_2_15 = """snapshot_time             {time}.123456789 secs.nsecs
start_time                1680000000.000000001 secs.nsecs
elapsed_time              {time}.123456788 secs.nsecs
read_bytes                {reads} samples [bytes] 4096 4194304 {read_bytes} 17592186044416
write_bytes               {writes} samples [bytes] 1 4194304 {write_bytes} 17592186044416
read                      {reads} samples [usecs] 30 91000 {busy_us} 90000
open                      {opens} samples [usecs] 2 5000 70000 90000
close                     {opens} samples [usecs] 2 5000 70000 90000
getattr                   {stats} samples [usecs] 2 5000 70000 90000
opencount                 {opens} samples [reqs] 1 9 900 9000
inode_permission          70000 samples [usecs] 0 20 7000 900
"""
NFS = """device {source} mounted on {point} with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys
\tage:\t{age}
\timpl_id:\tname='',domain='',date='0,0'
\tcaps:\tcaps=0xfffbc0bf,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffbfff,bm1=0xf9be3e,bm2=0x60800,acl=0x3,sessions,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t9 99 2 7 {opens} 50 60 0 4 5 6 7 8 9 10 11 12 13 0 1 2 0 0 0 0 0 0
\tbytes:\t777777777777 888888888888 0 0 {read_bytes} {write_bytes} 4096 8192
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 2 0 12 5000 4990 0 6000 0 2 40 60
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: {reads} {reads} 0 200 300 4 5 {read_ms} 0
\t       WRITE: {writes} {writes} 0 200 300 4 5 {write_ms} 0
\t      COMMIT: 9 9 0 200 300 4 5 6 0
\t        OPEN: 10 10 0 200 300 4 5 6 0
\t     GETATTR: {stats} {stats} 0 200 300 4 5 6 0
\t    SEQUENCE: 9999 9999 0 200 300 4 5 6 0

"""
_PLAIN = "device {} mounted on {} with fstype {}\n"
COUNTS = {"time": 1680000010, "reads": 10, "writes": 20, "opens": 5, "stats": 7, "age": 50, "read_bytes": 10**6}
COUNTS.update(write_bytes=2 * 10**6, busy_us=500_000, read_ms=100, write_ms=200)


class StorageTree:
    """An invented /proc and /sys with mounts of storage.

    Args:
        root: where the tree goes.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.proc, self.sys = root, str(root / "proc"), str(root / "sys")
        self._mounts: dict[str, str] = {}
        self._table: list[str] = []
        self.mount("/", "xfs", "/dev/sda1")

    def write(self, name: str, text: str) -> Path:
        """Write a file of the tree, in place, so that what is open reads on."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def mount(self, point: str, kind: str, source: str, device: str = "0:40", statistics: str = "") -> None:
        """Mount something, or say anew what its statistics are."""
        if point not in self._mounts:
            self._table.append(f"30 1 {device} / {point} rw,relatime shared:1 - {kind} {source} rw\n")
        self._mounts[point] = statistics or _PLAIN.format(source, point, kind)
        self._tell()

    def unmount(self, point: str) -> None:
        """Take a mount away."""
        del self._mounts[point]
        self._table = [line for line in self._table if f" {point} " not in line]
        self._tell()

    def nfs(self, point: str, source: str = "filer:/home", device: str = "0:45", **counts: int) -> None:
        """Mount NFS, or let its counters be these."""
        text = NFS.format(**{**COUNTS, **counts}, point=point, source=source)
        self.mount(point, "nfs4", source, device, text)

    def statistics(self, point: str) -> str:
        """Return what the kernel says of a mount."""
        return self._mounts[point]

    def lustre(
        self, name: str, form: str = LUSTRE_2_15, folder: str = "sys/kernel/debug/lustre", **counts: int
    ) -> Path:
        """Let the counters of a Lustre client be these; `name` is of the client, such as `scratch-ffff1`."""
        return self.write(f"{folder}/llite/{name}/stats", form.format(**{**COUNTS, **counts}))

    def _tell(self) -> None:
        self.write("proc/self/mountstats", "".join(self._mounts.values()))
        self.write("proc/self/mountinfo", "".join(self._table))
