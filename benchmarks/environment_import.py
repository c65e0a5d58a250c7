"""How long an image of three layers takes from an OCI layout to a root that can be mounted, and how much memory.

    python benchmarks/environment_import.py --rounds 5 [--mb 200]

Ours merges the layers as a stream into squashfs; beside it `umoci unpack` and mksquashfs with the same compression, and `podman
load` into a storage of its own (which makes folders, not a file that can be kept on a shared file system). Each round measures
everything in turn, so that what else the machine does hits all alike; medians are printed. Memory is the largest sum of the
resident sets of all processes, sampled every 10 ms. The data are files of this machine: its Python and what is installed in it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from cordee.testing.oci import OciLayout

SAMPLED_EVERY_S = 0.01
IMPORT = (
    "import sys, pathlib\n"
    "from cordee.systems.environments.images.image_import import import_image\n"
    "from cordee.machine.images.oci import open_image\n"
    "from cordee.systems.environments.images.store.image_store import ImageStore\n"
    "import_image(open_image(pathlib.Path(sys.argv[1])), ImageStore(pathlib.Path(sys.argv[2])), origin='benchmark')\n"
)
SQUASH = [
    "-comp",
    "zstd",
    "-Xcompression-level",
    "3",
    "-no-progress",
    "-quiet",
    "-no-xattrs",
    "-all-root",
    "-mem",
    "512M",
]


def make_layout(folder: Path, megabytes: int) -> tuple[OciLayout, int, int]:
    """Make an image of three layers from files of this machine; the third writes over files of both. Return files and bytes."""
    files = list(files_here(megabytes * 1_000_000))
    layers = [files[: len(files) * 6 // 10], files[len(files) * 6 // 10 :], files[::20]]
    streams = []
    for number, layer in enumerate(layers):
        path = folder / f"{number}.tar"
        with tarfile.open(path, "w") as archive:
            for file in layer:
                archive.add(file, arcname=str(file).lstrip("/"))
        streams.append(path.read_bytes())
        path.unlink()
    layout = OciLayout(folder / "layout")
    layout.add(streams, tag="benchmark")
    return layout, sum(map(len, layers)), sum(map(len, streams))


def files_here(most: int) -> Iterator[Path]:
    """Yield files until they have so many bytes."""
    size = 0
    for place in (sysconfig.get_path("platlib"), "/usr/lib", "/usr/share", "/usr/bin"):
        for file in sorted(Path(place).rglob("*")):
            if file.is_file() and not file.is_symlink() and os.access(file, os.R_OK):
                bytes_ = file.stat().st_size
                if bytes_ > most // 20:
                    continue
                size += bytes_
                yield file
            if size > most:
                return


class Measured(NamedTuple):
    """Of one command and its children: seconds by the clock, seconds of CPU, and the most bytes that were resident at once."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measured(command: list[str]) -> Measured:
    """Run a command."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    most, done = 0, 0
    while not done:
        most = max(most, sum(resident(pid) for pid in below(process.pid)))
        time.sleep(SAMPLED_EVERY_S)
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    if process.returncode:
        raise SystemExit(f"{command[0]} failed: {process.stderr.read().decode()}")
    process.stderr.close()
    return Measured(seconds, usage.ru_utime + usage.ru_stime, most)


def below(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for task in os.listdir(f"/proc/{pid}/task"):
            if task != str(pid):
                children += Path(f"/proc/{pid}/task/{task}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from below(int(child))


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def ours(layout: Path, folder: Path) -> Measured:
    return measured([sys.executable, "-c", IMPORT, str(layout), str(folder)])


def umoci(layout: Path, folder: Path) -> Measured:
    bundle = folder / "bundle"
    unpack = [
        "umoci",
        "unpack",
        *([] if os.getuid() == 0 else ["--rootless"]),
        "--image",
        f"{layout}:benchmark",
        str(bundle),
    ]
    first = measured(unpack)
    second = measured(["mksquashfs", str(bundle / "rootfs"), str(folder / "root.squashfs"), *SQUASH])
    return Measured(
        first.seconds + second.seconds,
        first.cpu_seconds + second.cpu_seconds,
        max(first.peak_bytes, second.peak_bytes),
    )


def podman(layout: Path, folder: Path) -> Measured:
    archive = layout.parent / "archive.tar"
    storage = ["--root", str(folder / "root"), "--runroot", str(folder / "run")]
    return measured(["podman", *storage, "load", "-q", "-i", str(archive)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mb", type=int, default=200)
    arguments = parser.parse_args()
    ways: dict[str, Callable[[Path, Path], Measured]] = {"cordee": ours}
    ways |= {"umoci unpack + mksquashfs": umoci} if shutil.which("umoci") else {}
    ways |= {"podman load": podman} if shutil.which("podman") else {}
    results: dict[str, list[Measured]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        layout, files, size = make_layout(base, arguments.mb)
        layout.archive(base / "archive.tar")
        print(f"{files} files, {size / 1e6:.0f} MB in three layers, {os.cpu_count()} CPUs")
        for number in range(arguments.rounds):
            for way, measure in ways.items():
                folder = base / f"{number}-{len(results[way])}-{way.split()[0]}"
                folder.mkdir()
                results[way].append(measure(layout.folder, folder))
                shutil.rmtree(folder, ignore_errors=True)
    print("| what | median s | least | CPU s, median | peak MB |\n|---|---|---|---|---|")
    for way, found in results.items():
        seconds = sorted(each.seconds for each in found)
        cpu = statistics.median(each.cpu_seconds for each in found)
        peak = max(each.peak_bytes for each in found)
        print(f"| {way} | {statistics.median(seconds):.1f} | {seconds[0]:.1f} | {cpu:.1f} | {peak / 1e6:.0f} |")


if __name__ == "__main__":
    main()
