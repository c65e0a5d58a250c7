"""What sampling shared storage costs: CPU per sample of an invented node with Lustre and NFS mounts, as the kernel shows them.

The NFS statistics have as many operations as version 4.2 of Linux 6 (about 70 lines for each mount). Files lie on a memory file
system where there is one; the kernel's own cost of writing them is not in it.

python benchmarks/storage_sampler_cost.py
python benchmarks/storage_sampler_cost.py --lustre 4 --nfs 20 --others 200 --samples 200
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from cordee.telemetry.node.samplers.storage.sampler import StorageSampler
from support.hosts.storage_tree import StorageTree

MORE_OPERATIONS = 64


def cost_us(lustre: int, nfs: int, others: int, samples: int) -> float:
    """Return the mean CPU microseconds of a sample."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        tree = StorageTree(Path(folder))
        for at in range(others):
            tree.mount(f"/other{at}", "tmpfs", "tmpfs")
        for at in range(lustre):
            tree.mount(f"/scratch{at}", "lustre", f"10.0.0.1@o2ib:/s{at}")
            tree.lustre(f"s{at}-ffff1")
        for at in range(nfs):
            tree.nfs(f"/home{at}", device=f"0:{50 + at}")
            line = "\t      FILLER{}: 1 1 0 200 300 4 5 6 0\n"
            text = tree.statistics(f"/home{at}") + "".join(line.format(number) for number in range(MORE_OPERATIONS))
            tree.mount(f"/home{at}", "nfs4", "filer:/home", statistics=text)
        sampler = StorageSampler("n", tree.proc, tree.sys)
        sampler.sample()
        before = time.process_time()
        for _ in range(samples):
            sampler.sample()
        return (time.process_time() - before) / samples * 1e6


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lustre", type=int, default=2)
    parser.add_argument("--nfs", type=int, default=4)
    parser.add_argument("--others", type=int, default=60)
    parser.add_argument("--samples", type=int, default=1000)
    options = parser.parse_args()
    print("| Lustre mounts | NFS mounts | other mounts | CPU us per sample | share of a core at 1 Hz |")
    print("|---|---|---|---|---|")
    for lustre, nfs in ((0, 0), (options.lustre, 0), (0, options.nfs), (options.lustre, options.nfs)):
        took = cost_us(lustre, nfs, options.others, options.samples)
        print(f"| {lustre} | {nfs} | {options.others} | {took:.0f} | {took / 1e6:.4%} |", flush=True)


if __name__ == "__main__":
    main()
