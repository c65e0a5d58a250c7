"""`cordee flight` beside torchfrtrace: right answers, CPU time and memory, in one run.

    python benchmarks/flight.py --each 16 --missing 0.3

Right answers: synthetic faults (`support.flight.faults`), then faults that were held out (`flight_held_out.py`), each with
up to a share of the dumps missing. Both tools get the same folders. An answer is *right* when exactly the culprits are named,
*unknown* when nobody is, *wrong* else; torchfrtrace's answer is whom its first error names, as culprit or as missing. Where the
culprit's own dump is missing nothing more than "unknown" is asked for.

Speed and memory: a fault among many ranks, whole rings; CPU seconds and peak memory of the process: the median of three times,
torchfrtrace once.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

from flight_held_out import CROSSED, MENDED, make_crossed, make_held_out, make_mended
from flight_held_out import FAULTS as HELD_OUT

from cordee.systems.explain.flight.analysis import analyse
from cordee.systems.explain.flight.files import find_dumps
from support.flight.dumps import write_dump
from support.flight.faults import FAULTS, MadeFault, make_fault

SIZES = ((512, 160), (4096, 96), (128, 2000))
_TP = 8
_PATTERN = (1, 1, 1, 2, 0, 1)  # of a step: tensor parallel, data parallel, all


def ours(folder: Path) -> set[int]:
    """Return whom `cordee flight` names."""
    return {rank for finding in analyse(find_dumps(folder)).findings for rank in finding["ranks"]}


def theirs(folder: Path) -> set[int] | None:
    """Return whom torchfrtrace's first error names; None where it ends with an exception."""
    # It draws tables with a package that it can do without, but not everywhere.
    sys.modules.setdefault("tabulate", cast(Any, SimpleNamespace(tabulate=lambda *table, **form: "")))
    from torch.distributed.flight_recorder import fr_trace

    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("Flight Recorder")
    logger.handlers = [listener]
    logger.propagate = False
    try:
        fr_trace.main([str(folder), "--allow-incomplete-ranks"])
    except Exception:
        return None
    finally:
        gc.enable()  # its loader leaves it off
    for line in said:
        if "Culprit rank" in line:
            return {int(rank) for rank in re.findall(r"Culprit rank (\d+)", line)}
        if match := re.search(r"missing ranks: \{([\d, ]+)\}", line):
            return {int(rank) for rank in match[1].split(",")}
    return set()


def judge(named: set[int] | None, fault: MadeFault, missing: set[int]) -> str:
    """Return what an answer is worth."""
    if named is None:
        return "exception"
    if named == fault.culprits or (named and named == fault.culprits - (missing - named)):
        return "right"  # of whom there is no dump nothing can be said
    if not named:
        return "unknown, its dump is missing" if fault.culprits & missing else "unknown"
    return "wrong"


def answers(
    names: list[str], make: Callable[[str, int], MadeFault], seeds: range, share: float, peer: bool
) -> dict[str, dict[str, Counter[str]]]:
    """Return how many answers of each worth both tools give, by fault."""
    table: dict[str, dict[str, Counter[str]]] = {}
    for name in names:
        found = table[name] = {"ours": Counter(), "theirs": Counter()}
        for seed in seeds:
            fault = make(name, seed)
            dice = random.Random(f"missing {name} {seed}")
            missing = set(dice.sample(range(fault.world), int(fault.world * dice.uniform(0, share))))
            folder = Path(tempfile.mkdtemp())
            fault.made.write(folder, without=missing, form="rank_{}")
            found["ours"][judge(ours(folder), fault, missing)] += 1
            if peer:
                found["theirs"][judge(theirs(folder), fault, missing)] += 1
            shutil.rmtree(folder)
        print(name, {tool: dict(counts) for tool, counts in found.items()}, flush=True)
    return table


def write_many(folder: Path, world: int, ring: int) -> None:
    """Write the dumps of `world` ranks in tensor and data parallel groups, one of which stands still."""
    culprit = world // 3
    groups = {"0": ("default_pg", list(range(world)))}
    for first in range(0, world, _TP):
        groups[f"t{first}"] = ("tp", list(range(first, first + _TP)))
    for lane in range(_TP):
        groups[f"d{lane}"] = ("dp", list(range(lane, world, _TP)))
    total = 5000 + ring
    # PyTorch writes a frame once, however many stacks it is in.
    frames = [{"name": f"layer_{at}", "filename": f"/home/ada/model/part_{at}.py", "line": at * 7} for at in range(40)]
    for rank in range(world):
        own = ["0", f"t{rank - rank % _TP}", f"d{rank % _TP}"]
        near = rank // _TP == culprit // _TP
        calls, counts = [], [0, 0, 0]
        for number in range(total):
            which = _PATTERN[number % 6]
            late = number >= total - 6
            if late and rank == culprit:
                break
            counts[which] += 1
            waits = late and (which != 1 or near)
            calls.append((number, which, counts[which], waits))
            if waits:
                break
        entries = [
            {
                "frames": [frames[(number + up) % len(frames)] for up in range(12)],
                "record_id": number,
                "pg_id": which,
                "process_group": (own[which], groups[own[which]][0]),
                "thread_name": "pt_main_thread",
                "thread_id": "140421013433216",
                "collective_seq_id": sequence,
                "p2p_seq_id": 0,
                "op_id": sequence,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": 1_795_000_000_000_000_000 + number * 1_000_000 + rank,
                "input_sizes": [[4096, 1024] if which == 1 else [1 << 20]],
                "input_dtypes": ["BFloat16"],
                "output_sizes": [[4096, 1024] if which == 1 else [1 << 20]],
                "output_dtypes": ["BFloat16"],
                "state": "started" if waits else "completed",
                "time_discovered_started_ns": 1,
                "time_discovered_completed_ns": None if waits else 2,
                "retired": not waits,
                "timeout_ms": 600000,
                "is_p2p": False,
            }
            for number, which, sequence, waits in calls[-ring:]
        ]
        config = {name: {"name": name, "desc": groups[name][0], "ranks": str(groups[name][1])} for name in own}
        dump = {"version": "2.10", "pg_config": config, "comm_lib_version": "", "pg_status": {}, "entries": entries}
        write_dump(folder / f"rank_{rank}", dump)


# A process that is large would lend its size to its child.
_SMALL = """
import os, sys
with open(os.devnull, "w") as nowhere:
    child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nowhere.fileno(), 1),
        (os.POSIX_SPAWN_DUP2, nowhere.fileno(), 2)])
used = os.wait4(child, 0)[2]
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1000)
"""


def cost(argv: list[str]) -> tuple[float, float]:
    """Return CPU seconds and peak memory in MB of a command."""
    said = subprocess.run([sys.executable, "-I", "-S", "-c", _SMALL, *argv], check=True, capture_output=True, text=True)
    seconds, size = map(float, said.stdout.split())
    return seconds, size


def speed(times: int, peer: bool) -> None:
    """Print what both tools take, in turn."""
    tools = {
        "cordee": [sys.executable, "-m", "cordee.cli", "flight"],
        "torchfrtrace": [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"],
    }
    for world, ring in SIZES:
        folder = Path(tempfile.mkdtemp())
        write_many(folder, world, ring)
        named = sorted(ours(folder))
        for tool in list(tools)[: 2 if peer else 1]:
            taken = [cost([*tools[tool], str(folder)]) for _ in range(times if tool == "cordee" else 1)]
            seconds, size = median(one for one, _ in taken), median(one for _, one in taken)
            print(f"{world} x {ring}: {tool}: {seconds:.2f} CPU s, {size:.0f} MB", flush=True)
        print(
            f"{world} x {ring}: culprit {world // 3}, named {named}; {torch_names(folder) if peer else ''}", flush=True
        )
        shutil.rmtree(folder)


def torch_names(folder: Path) -> str:
    """Return whom torchfrtrace names, in words."""
    named = theirs(folder)
    return "torchfrtrace ends with an exception" if named is None else f"torchfrtrace names {sorted(named)[:8]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=16, help="faults of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed: others than 0 were not tuned with")
    parser.add_argument("--missing", type=float, default=0.3, help="share of the dumps that may be missing")
    parser.add_argument("--times", type=int, default=3, help="how often our speed is measured")
    parser.add_argument("--alone", action="store_true", help="leave torchfrtrace out")
    parser.add_argument("--only", choices=["faults", "held-out", "crossed", "mended", "speed"])
    options = parser.parse_args()
    tables = {}
    seeds = range(options.first, options.first + options.each)
    if options.only in (None, "faults"):
        tables["faults"] = answers(list(FAULTS), make_fault, seeds, options.missing, not options.alone)
    if options.only in (None, "held-out"):
        tables["held out"] = answers(list(HELD_OUT), make_held_out, seeds, options.missing, not options.alone)
    if options.only in (None, "crossed"):
        tables["crossed"] = answers(CROSSED, make_crossed, seeds, options.missing, not options.alone)
    if options.only in (None, "mended"):
        tables["mended"] = answers(MENDED, make_mended, seeds, options.missing, not options.alone)
    for title, table in tables.items():
        for tool in ("ours", "theirs"):
            total: Counter[str] = Counter()
            for counts in table.values():
                total += counts[tool]
            print(json.dumps({"faults": title, "tool": tool, **total}))
    if options.only in (None, "speed"):
        speed(options.times, not options.alone)


if __name__ == "__main__":
    main()
