"""Packing, killed with SIGKILL at random 100 times: nothing lost, nothing twice.

`python benchmarks/data_kill.py [--kills 100] [--files 3000] [--seed 1] [--write FILE]`. Each round packs the same files with
one to three processes and kills the whole process group, or one worker of it, at a random moment until as many kills are
spent as were asked for; a packing that comes to its end is compared with one that was never disturbed, and begun anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cordee.systems.data.pack.unpack import unpack
from cordee.systems.data.pack.verify import verify

INDEX = "dataset.index"


def make_files(folder: Path, count: int, draw: random.Random) -> None:
    """Write files of up to 60 kB in ten classes."""
    for number in range(count):
        path = folder / f"n{number % 10:02d}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(draw.randrange(60_000)))


def digest(folder: Path) -> str:
    """Return one digest of the names and bytes of all files below a folder."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(str(path.relative_to(folder)).encode() + b"\0")
        found.update(path.read_bytes())
    return found.hexdigest()


def packing(source: Path, to: Path, workers: int) -> list[str]:
    """Return the command that packs."""
    command = [sys.executable, "-m", "cordee.faces.cli", "data", "pack", str(source), "--to", str(to), "--json"]
    return [*command, "--shard-size", "2MB", "--workers", str(workers)]


def children(process: int) -> list[int]:
    """Return the children of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            about = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(about[1]) == process:
            found.append(int(path.parent.name))
    return found


class Killer:
    """Packs again and again, and kills what packs."""

    def __init__(self, source: Path, folder: Path, expected: str, longest_s: float, draw: random.Random) -> None:
        self.source, self.folder, self.expected, self.longest_s, self.draw = source, folder, expected, longest_s, draw
        self.kills = self.workers_killed = self.ended = self.resumed = self.begun_with_shards = 0

    def spend(self, kills: int) -> None:
        """Pack until as many kills are spent; every packing that ends is compared."""
        while self.kills < kills:
            to = self.folder / "killed" / "packed"
            shutil.rmtree(to.parent, ignore_errors=True)
            before = self.kills
            while not self.once(to):
                if (to / INDEX).exists():  # killed when nothing was left to do but to tidy up
                    break
            assert self.whole(to), "what was packed differs, or an index stands beside less than all shards"
            self.ended += 1
            self.resumed += self.kills > before

    def once(self, to: Path) -> bool:
        """Pack, kill at a random moment, and say whether it came to its end before."""
        if to.exists() and any(path.suffix == ".tar" for path in to.iterdir()):
            self.begun_with_shards += 1
        moment = self.draw.uniform(0, self.longest_s)
        begun = self.draw.random() < 0.8  # else the moment may come while Python starts
        command = packing(self.source, to, self.draw.choice((1, 2, 3)))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        while begun and process.poll() is None and not (to / ".packing" / "plan.json").exists():
            time.sleep(0.001)
        try:
            answer, error = process.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            workers = children(process.pid)
            if workers and self.draw.random() < 0.3:
                os.kill(self.draw.choice(workers), signal.SIGKILL)
                self.workers_killed += 1
            elif self.draw.random() < 0.5:
                os.kill(process.pid, signal.SIGKILL)  # its workers find themselves alone
            else:
                os.killpg(process.pid, signal.SIGKILL)
            self.kills += 1
            answer, error = process.communicate()
        if process.returncode not in (0, -signal.SIGKILL):
            assert b"ended by signal 9" in answer + error, (answer + error).decode()
        return process.returncode == 0

    def whole(self, to: Path) -> bool:
        """Say whether the data set is, byte for byte, what an undisturbed packing makes."""
        shutil.rmtree(to / ".packing", ignore_errors=True)
        return digest(to) == self.expected


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder / "files", given.files, draw)
        command = packing(folder / "files", folder / "straight" / "packed", 1)
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        longest_s = 1.2 * json.loads(done.stdout)["seconds"]
        straight = folder / "straight" / "packed"
        assert not verify(str(straight)).damaged
        unpack(str(straight), str(folder / "back"))
        assert digest(folder / "back") == digest(folder / "files")
        shards = len(list(straight.glob("*.tar")))
        killer = Killer(folder / "files", folder, digest(straight), longest_s, draw)
        began = time.monotonic()
        killer.spend(given.kills)
    lines = [
        "# Packing, killed at random",
        "",
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, `python benchmarks/data_kill.py --kills {given.kills} "
        f"--files {given.files} --seed {given.seed}`, {os.cpu_count()} cores, {time.monotonic() - began:.0f} s.",
        "",
        f"- {killer.kills} times SIGKILL, {killer.workers_killed} of them to one worker, up to "
        f"{longest_s:.2f} s after the beginning of a packing of {given.files:,} files into {shards} shards",
        f"- {killer.begun_with_shards} of the calls found shards of an earlier one that was killed",
        f"- {killer.ended} packings came to their end, {killer.resumed} of them in more than one call: "
        f"every one is byte for byte what an undisturbed packing makes, and an index never stood beside less",
    ]
    print("\n".join(lines))
    if given.write:
        given.write.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
