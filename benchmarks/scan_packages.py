"""Packages, advisories and images: how long `cordee scan` takes beside cyclonedx-py, and whether it finds what dpkg and find know.

    python -m venv /tmp/peers && /tmp/peers/bin/pip install cyclonedx-bom pip-audit
    python benchmarks/scan_packages.py --peers /tmp/peers/bin --venv .venv [--names FILE] [--image]

`--names` takes a file of names of real packages, one a line: how many of those that are in no list are taken for a typing error.
`--image` makes a squashfs of parts of this machine (minutes of CPU for large ones) and looks into it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

PARTS = ("etc", "var/lib/dpkg", "usr/bin", "usr/sbin", "usr/lib/python3", "usr/share/doc", "usr/lib/os-release")


def timed(argv: list[str], env: dict[str, str] | None = None) -> tuple[float, float, str]:
    """Return (wall seconds, CPU seconds, what it printed) of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu, done.stdout if done.returncode in (0, 1) else f"failed: {done.stderr[-300:]}"


def snapshot(path: Path, records: int, names: list[str]) -> None:
    """Write a snapshot of the size of OSV's: made records, whose lengths are spread as real ones are (1 to 20 KB)."""
    chance = random.Random(7)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(records):
            name = names[number] if number < len(names) else f"package-{number // 3}"
            versions = [
                f"{a}.{b}.{c}"
                for a in range(3)
                for b in range(chance.randrange(1, 12))
                for c in range(chance.randrange(1, 12))
            ]
            record = {
                "id": f"PYSEC-2026-{number}", "modified": "2026-11-20T00:00:00Z", "aliases": [f"CVE-2026-{number}"],
                "details": "word " * chance.randrange(50, 900), "severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:N"}],
                "affected": [{"package": {"ecosystem": "PyPI", "name": name}, "versions": versions,
                              "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "0.0.1"}]}]}],
            }  # fmt: skip
            archive.writestr(f"{record['id']}.json", json.dumps(record))


def tell(what: str, runs: list[tuple[float, float, str]]) -> None:
    wall, cpu = (statistics.median(one[at] for one in runs) for at in (0, 1))
    failed = next((one[2] for one in runs if one[2].startswith("failed")), "")
    print(f"| {what} | {wall:.2f} s | {cpu:.2f} s | {failed.strip().splitlines()[-1] if failed else ''} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--names", type=Path)
    parser.add_argument("--image", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    cordee = str(Path(sys.executable).parent / "cordee")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        env = {"XDG_CACHE_HOME": str(folder / "cache")}
        bom = str(folder / "bom.json")
        installed = json.loads(timed([cordee, "scan", given.venv, "--json"], env)[2])["packages"]
        names = [one["name"] for one in installed]
        print(
            f"{len(names)} packages in {given.venv}; medians of {given.times}\n\n| what | wall | CPU | |\n|---|---|---|---|"
        )
        commands = {"cordee scan, with a bill of materials": [cordee, "scan", given.venv, "--sbom", bom]}
        if given.peers:
            python = str(Path(given.venv) / "bin" / "python")
            commands["cyclonedx-py environment"] = [
                str(given.peers / "cyclonedx-py"),
                "environment",
                python,
                "-o",
                str(folder / "peer.json"),
            ]
        runs: dict[str, list[tuple[float, float, str]]] = {what: [] for what in commands}
        for _ in range(given.times):
            for what, argv in commands.items():
                runs[what].append(timed(argv, env))
        for what, each in runs.items():
            tell(what, each)
        if given.peers and (folder / "peer.json").is_file():
            peer, own = (
                {
                    (one["name"].lower().replace("_", "-"), one.get("version"))
                    for one in json.loads(Path(each).read_text())["components"]
                }
                for each in (folder / "peer.json", bom)
            )
            print(
                f"| components: cordee {len(own)}, cyclonedx-py {len(peer)}; only cordee {len(own - peer)}, only cyclonedx-py {len(peer - own)} | | | |"
            )
            tell(
                "pip-audit --path (it asks a service)",
                [timed([str(given.peers / "pip-audit"), "--timeout", "5", "--path", given.venv], env)],
            )
        snapshot(folder / "all.zip", 20_000, names)
        size = (folder / "all.zip").stat().st_size
        argv = [cordee, "scan", given.venv, "--packages", "--advisories", str(folder / "all.zip")]
        tell(f"advisories: 20,000 records, {size >> 20} MiB, the first time", [timed(argv, env)])
        tell("the same again", [timed(argv, env) for _ in range(given.times)])
        if given.names:
            from cordee.systems.scan.packages.names import known_names

            known = known_names()
            others = [name for name in given.names.read_text().split() if not known.is_known(name)]
            taken = [name for name in others if known.looks_like(name)]
            print(
                f"\nnames: {len(others)} real ones in no list, {len(taken)} taken for a typing error ({len(taken) / len(others):.1%})"
            )
        if given.image:
            image(folder, cordee, env)


def image(folder: Path, cordee: str, env: dict[str, str]) -> None:
    """Make a squashfs of parts of this machine, look into it, and hold what was found against dpkg and find."""
    place = folder / "machine.sqsh"
    parts = [part for part in PARTS if Path("/", part).exists()]
    subprocess.run(
        ["tar", "-C", "/", "--xattrs", "--xattrs-include=security.*", "-cf", str(folder / "parts.tar"), *parts],
        check=False,
        capture_output=True,
    )
    with open(folder / "parts.tar", "rb") as parts_tar:
        subprocess.run(
            ["mksquashfs", "-", place, "-tar", "-comp", "zstd", "-Xcompression-level", "1", "-quiet", "-no-progress"],
            stdin=parts_tar,
            check=True,
        )
    files = sum(len(names) for part in parts for _, _, names in os.walk(f"/{part}"))
    wall, cpu, said = timed([cordee, "scan", str(place), "--json"], env)
    document = json.loads(said)
    found = {one["name"] for one in document["packages"] if one["kind"] == "deb"}
    listed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n"], capture_output=True, text=True, check=True
    )
    known = {line.split()[0] for line in listed.stdout.splitlines() if line.endswith(" installed")}
    print(
        f"\nimage: {place.stat().st_size >> 20} MiB, {files:,} files: {wall:.2f} s, CPU {cpu:.2f} s; packages {len(found)}, dpkg says {len(known)}, missed {len(known - found)}"
    )
    for one in document["findings"]:
        print(f"  {one['severity']} {one['rule']} {one['text'][:160]} {one['where']}")
    print(f"  peak memory of children: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10} MiB")


if __name__ == "__main__":
    main()
