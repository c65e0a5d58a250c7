"""How long `true` takes in an environment: the namespace engine against bubblewrap, runc and podman.

    python benchmarks/environment_start.py --rounds 20

One after the other in every round, medians at the end; then 64 ranks that share one held container against 64 containers.
Run it as root: a user's turns go through `setpriv`. Machines are noisy: trust the differences within one run.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cordee.systems.environments.node.document import ContainerRoot, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EngineLaunch, enter_argv
from cordee.testing.containers import AS_USER, ENV
from cordee.testing.images import busybox_root, squashfs_of

RANKS = 64
BARE = [sys.executable, "-I", "-S", "-c", "pass"]
PODMAN = """[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


def spent() -> float:
    """Return the seconds of processors that ended children of this process have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wall(command: list[str], env: dict[str, str] = ENV) -> tuple[float, float]:
    """Return the seconds of one command, which has to succeed, by the clock and of processors."""
    started, before = time.perf_counter(), spent()
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    seconds = time.perf_counter() - started, spent() - before
    if done.returncode:
        raise SystemExit(f"{command}: {done.returncode}\n{done.stderr}")
    return seconds


def together(commands: list[list[str]]) -> float:
    """Return the seconds from the start of the first of many commands to the end of the last."""
    started = time.perf_counter()
    running = [
        subprocess.Popen(
            command, env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for command in commands
    ]
    codes = {process.wait() for process in running}
    seconds = time.perf_counter() - started
    if codes != {0}:
        raise SystemExit(f"{commands[0]}: {codes}")
    return seconds


def environment(path: Path) -> Environment:
    """Return an environment of a folder or of a squashfs file."""
    return Environment("benchmark", str(path), root=ContainerRoot("folder" if path.is_dir() else "squashfs", str(path)))


def ours(path: Path) -> list[str]:
    """Return the namespace engine's words for `true`."""
    return find_engine("namespace").argv(environment(path), EngineLaunch(("true",), ENV))


@contextmanager
def held(path: Path, who: list[str]) -> Iterator[list[str]]:
    """Hold a container; yields the words for `true` in it."""
    words = [*who, *find_engine("namespace").hold(environment(path))]
    with subprocess.Popen(words, env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        yield [*who, *enter_argv(json.loads(holder.stdout.readline())["enter"], ["true"], "/")]
        holder.stdin.close()


def bubblewrap(root: Path) -> list[str]:
    """Return bubblewrap's words: new namespaces, the folder, /dev, /proc, a /tmp."""
    return [
        "bwrap",
        "--unshare-pid",
        "--ro-bind",
        str(root),
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
        "true",
    ]


def runc(folder: Path, root: Path, name: str) -> list[str]:
    """Write a bundle of the folder and return runc's words."""
    bundle = folder / name
    bundle.mkdir()
    subprocess.run(["runc", "spec", "-b", str(bundle)], check=True)
    config = json.loads((bundle / "config.json").read_text())
    config["process"].update(terminal=False, args=["true"])
    config["process"].pop("rlimits", None)
    config["root"] = {"path": str(root), "readonly": True}
    (bundle / "config.json").write_text(json.dumps(config))
    return ["runc", "--root", str(folder / "runc"), "run", "-b", str(bundle), name]


def podman(folder: Path, root: Path) -> list[str]:
    """Return podman's words."""
    (folder / "containers.conf").write_text(PODMAN)
    settings = [f"CONTAINERS_CONF={folder}/containers.conf"]
    return ["env", *settings, "podman", "run", "--rm", "--network=host", "--rootfs", f"{root}:O", "true"]


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--compression", default="zstd", help="of the squashfs file (default: the one that the store uses)"
    )
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cordee-start-"))
    folder.chmod(0o755)
    try:
        root = busybox_root(folder / "root")
        packed = squashfs_of(root, folder / "root.sqsh", ["-comp", given.compression])
        starts(folder, root, packed, given.rounds)
        ranks(folder, root, packed, max(3, given.rounds // 5))
    finally:
        shutil.rmtree(folder)


def starts(folder: Path, root: Path, packed: Path, rounds: int) -> None:
    """Print the table of one `true`."""
    with held(packed, []) as enter, held(packed, AS_USER) as user_enter:
        cases = {
            "bare interpreter": BARE,
            "namespace, folder": ours(root),
            "namespace, squashfs by the kernel": ours(packed),
            "namespace, enter a held container": enter,
            "bubblewrap, folder": bubblewrap(root),
            "runc, folder": runc(folder, root, "one"),
            "podman --rootfs, folder": podman(folder, root),
            "user: bare interpreter": [*AS_USER, *BARE],
            "user: namespace, folder": [*AS_USER, *ours(root)],
            "user: namespace, squashfuse": [*AS_USER, *ours(packed)],
            "user: namespace, enter a held container": user_enter,
            "user: bubblewrap, folder": [*AS_USER, *bubblewrap(root)],
        }
        cases = {name: command for name, command in cases.items() if available(command)}
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
        for command in cases.values():
            wall(command, {**ENV, "HOME": str(folder)})
        for _ in range(rounds):
            for name, command in cases.items():
                seconds[name].append(wall(command, {**ENV, "HOME": str(folder)}))
    print(f"`true`, {rounds} rounds, in turn; ms\n")
    print("| case | median | least | above its interpreter | of processors |\n|---|---|---|---|---|")
    for name, values in seconds.items():
        base = seconds["user: bare interpreter" if name.startswith("user") else "bare interpreter"]
        above = statistics.median(value - other for (value, _), (other, _) in zip(values, base, strict=True))
        median, used = (statistics.median(column) for column in zip(*values, strict=True))
        least = min(value for value, _ in values)
        print(f"| {name} | {median * 1e3:.1f} | {least * 1e3:.1f} | {above * 1e3:+.1f} | {used * 1e3:.1f} |")


def ranks(folder: Path, root: Path, packed: Path, rounds: int) -> None:
    """Print the table of 64 at once."""
    seconds: dict[str, list[float]] = {}
    for turn in range(rounds):
        for who, label in (([], ""), (AS_USER, "user: ")):
            for image, kind in ((root, "folder"), (packed, "squashfs")):
                started = time.perf_counter()
                with held(image, who) as enter:
                    opened = time.perf_counter() - started
                    name = f"{label}namespace, one held container, {kind}"
                    seconds.setdefault(name, []).append(opened + together([enter] * RANKS))
            seconds.setdefault(f"{label}{RANKS} bare interpreters", []).append(together([[*who, *BARE]] * RANKS))
            seconds.setdefault(f"{label}{RANKS} bubblewraps, folder", []).append(
                together([[*who, *bubblewrap(root)]] * RANKS)
            )
        containers = [runc(folder, root, f"many-{turn}-{number}") for number in range(RANKS)]
        seconds.setdefault(f"{RANKS} runc containers, folder", []).append(together(containers))
    cores = os.cpu_count()
    print(
        f"\n{RANKS} at once on {cores} cores, {rounds} rounds, until the last has ended\n\n| case | median ms | least |\n|---|---|---|"
    )
    for name, values in seconds.items():
        print(f"| {name} | {statistics.median(values) * 1e3:.0f} | {min(values) * 1e3:.0f} |")


def available(command: list[str]) -> bool:
    """Return whether the program of a case is installed."""
    words = command[len(AS_USER) :] if command[: len(AS_USER)] == AS_USER else command
    program = next(word for word in words if word != "env" and "=" not in word)
    return shutil.which(program) is not None


if __name__ == "__main__":
    main()
