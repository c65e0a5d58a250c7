"""Measure `import torch` from a packed environment on squashfs beside its folder: cold, warm, and requests for metadata.

`python benchmarks/environment_import_torch.py [VENV]` as root prints Markdown tables. Variants take turns in every round; before
a cold one the kernel is told to forget its caches (/proc/sys/vm/drop_caches). Times are of the whole process, the engine's
start included; where a container is held, as an agent does for its ranks, it is up before. Requests for metadata are counted by strace: calls that name a path in the environment, or a file opened there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EngineLaunch, enter_argv
from cordee.systems.environments.venv_image.packing import pack

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
CALLS = "%file,fstat,getdents64"
_CALL = re.compile(r"^\d+ +(\w+)\((.*)$")


def variants(venv: Path, folder: Path, code: str, stack: ExitStack) -> dict[str, tuple[list[str], Path]]:
    """Return by name the command line that imports, and the path whose requests the shared file system would see."""
    python = [str(venv / "bin" / "python"), "-B", "-c", code]
    engine = find_engine("namespace")
    found = {"folder": (python, venv)}
    for compression in ("zstd", "lz4", "none"):
        packed = pack(venv, folder / f"{compression}.sqsh", compression=compression)
        print(
            f"{compression}: {packed.files:,} files, {packed.packed_bytes:,} bytes, {packed.seconds:.1f} s", flush=True
        )
        packed.file.chmod(0o644)
        mount = ContainerMount(str(packed.file), str(venv), ("sqsh",))
        environment = Environment("pack", root=ContainerRoot("host"), mounts=(mount,), workdir="/")
        argv = engine.argv(environment, EngineLaunch(tuple(python), dict(os.environ)))
        found[f"{compression}, a container each"] = (argv, packed.file)
        enter = held(engine.hold(environment), stack)
        found[f"{compression}, in a container that is held"] = (enter_argv(enter, python, "/"), packed.file)
        if compression == "zstd" and shutil.which("squashfuse"):
            found["zstd, a container each, squashfuse as nobody"] = ([*AS_NOBODY, *argv], packed.file)
    return found


def held(argv: list[str], stack: ExitStack) -> list[str]:
    """Hold a container open until the end, and return the words that enter it."""
    child = stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    assert child.stdin is not None
    assert child.stdout is not None
    stack.callback(child.stdin.close)
    enter: list[str] = json.loads(child.stdout.readline())["enter"]
    return enter


def seconds(argv: list[str], cold: bool) -> float:
    """Return the time of one process."""
    if cold:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    start = time.perf_counter()
    subprocess.run(argv, check=True, cwd="/")
    return time.perf_counter() - start


def requests(argv: list[str], path: Path, folder: Path) -> Counter[str]:
    """Return by call how often a process and its children ask about `path` or what is below; `failed` counts too."""
    trace = folder / "trace"
    subprocess.run(
        ["strace", "-f", "-y", "-s", "4096", "-e", f"trace={CALLS}", "-o", trace, *argv], check=True, cwd="/"
    )
    count: Counter[str] = Counter()
    for line in trace.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match and str(path) in match[2] and match[1] != "execve":
            count[match[1]] += 1
            count["of those, for nothing"] += "= -1 ENOENT" in line
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", nargs="?", type=Path, default=Path(sys.prefix))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--code", default="import torch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cordee-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        lines = variants(options.venv.absolute(), folder, options.code, stack)
        times: dict[str, dict[bool, list[float]]] = {name: {True: [], False: []} for name in lines}
        for cold in (True, False):
            for _ in range(options.rounds):
                for name, (argv, _path) in lines.items():
                    times[name][cold].append(seconds(argv, cold))
        print("\n| | cold, s | warm, s | cold, of the folder's | warm, of the folder's |\n|---|---|---|---|---|")
        for name, of in times.items():
            ratios = [
                statistics.median(mine / base for mine, base in zip(of[cold], times["folder"][cold], strict=True))
                for cold in (True, False)
            ]
            medians = [statistics.median(of[cold]) for cold in (True, False)]
            print(f"| {name} | {medians[0]:.2f} | {medians[1]:.2f} | {ratios[0]:.2f} | {ratios[1]:.2f} |")
        print("\n| requests that reach the file system where it lies | all | by call |\n|---|---|---|")
        for name in ("folder", "zstd, a container each"):
            count = requests(*lines[name], folder)
            nothing = count.pop("of those, for nothing", 0)
            calls = ", ".join(f"{call} {number:,}" for call, number in count.most_common())
            print(f"| {name} | {count.total():,} ({nothing:,} for names that are not there) | {calls} |", flush=True)


if __name__ == "__main__":
    main()
