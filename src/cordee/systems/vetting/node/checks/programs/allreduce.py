"""Sums one array over processes of this node, as a training does with gradients: NCCL or RCCL over all GPUs, Gloo, or sockets."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from typing import Any

from cordee.machine.probes.common import Obstacle, ProbeDevice, Say, gpus, import_torch, serve
from cordee.machine.processes.parent import die_with_parent
from cordee.systems.vetting.node.checks.program import command_of
from cordee.wire.ports import pick_port

_WARM_UP = 2
_MIN_REPEATS = 3
_HOST = "127.0.0.1"


def main() -> None:
    """Answer one request: `engine` (nccl, gloo, sockets), `ranks` of gloo, `payload_bytes`, `seconds`."""
    serve(run)


def run(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return `{engine, ranks, payload_bytes, lanes: [{rank, device, uuid, model, median, best, worst, windows, wrong}]}`.

    Rates are bus bandwidths in bytes/s: 2 (n - 1) / n times the payload over the time of one sum (as nccl-tests defines it:
    doc/PERFORMANCE.md there). `wrong` counts elements of the last sum that are not the sum of the ranks' elements.
    """
    if request["engine"] == "sockets":
        say({"begin": "2 processes with sockets"})
        return _sockets(request)
    torch = import_torch()
    if request["engine"] == "nccl":
        devices = gpus(torch)
        if len(devices) < 2:
            return {"engine": "nccl", "ranks": len(devices), "payload_bytes": request["payload_bytes"], "lanes": []}
    else:
        devices = [ProbeDevice(model=f"CPU process {rank}") for rank in range(request["ranks"])]
    say({"begin": f"{request['engine']} over {len(devices)} processes"})
    return _with_ranks(request, devices)


def _with_ranks(request: dict[str, Any], devices: list[ProbeDevice]) -> dict[str, Any]:
    """Start one process per device and collect what each says; NCCL's own words about a failure stay on stderr."""
    port = pick_port(_HOST)
    ranks = []
    for rank, device in enumerate(devices):
        asked = {**request, "rank": rank, "ranks": len(devices), "port": port, "index": device.index}
        process = subprocess.Popen(
            command_of(sys.executable, "allreduce_rank"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(asked).encode())
        process.stdin.close()
        ranks.append(process)
    answers = _answers(ranks, devices)
    lanes = [{**device.facts(), **answer} for device, answer in zip(devices, answers)]
    return {
        "engine": request["engine"],
        "ranks": len(devices),
        "payload_bytes": request["payload_bytes"],
        "lanes": lanes,
    }


def _answers(ranks: list[subprocess.Popen[bytes]], devices: list[ProbeDevice]) -> list[dict[str, Any]]:
    """Return what each rank found; the first that fails is named and ends the others, which wait for it in vain.

    Raises:
        Obstacle: a rank failed.
    """
    outputs = {process.stdout.fileno(): rank for rank, process in enumerate(ranks) if process.stdout is not None}
    said = [b""] * len(ranks)
    answers: list[dict[str, Any]] = [{} for _ in ranks]
    while outputs:
        for descriptor in select.select(list(outputs), [], [])[0]:
            rank = outputs[descriptor]
            part = os.read(descriptor, 65536)
            said[rank] += part
            if part:
                continue
            del outputs[descriptor]
            code = ranks[rank].wait()
            last = json.loads((said[rank].splitlines() or [b"{}"])[-1])
            if code != 0 or "done" not in last:
                for other in ranks:
                    other.kill()
                words = last.get("broken") or last.get("cannot") or f"ended with {code}"
                raise Obstacle(f"the process of {devices[rank].label}: {words}", last.get("cause", "unusable"))
            answers[rank] = last["done"]
    return answers


def run_rank(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Take part as one rank; return `{rank, median, best, worst, windows, wrong}`."""
    torch = import_torch()
    import torch.distributed as group

    rank, ranks = request["rank"], request["ranks"]
    device = ProbeDevice(request["index"])
    if device.is_gpu:
        torch.cuda.set_device(device.index)
    store = group.TCPStore(_HOST, request["port"], ranks, is_master=rank == 0)
    group.init_process_group(request["engine"], store=store, rank=rank, world_size=ranks)
    count = request["payload_bytes"] // 4
    pattern = (torch.arange(count, dtype=torch.int64, device=device.torch_name) % 1021).to(torch.float32)
    tensor = torch.empty_like(pattern)
    enough = torch.zeros(1, dtype=torch.int32, device=device.torch_name)
    times: list[float] = []
    until = None
    while True:
        torch.add(pattern, rank, out=tensor)
        _wait(torch, device)
        started = time.perf_counter()
        group.all_reduce(tensor)
        _wait(torch, device)
        times.append(time.perf_counter() - started)
        if len(times) == _WARM_UP:
            until = time.monotonic() + request["seconds"]
        # All ranks must stop after the same sum: the first one decides.
        enough.fill_(until is not None and len(times) >= _WARM_UP + _MIN_REPEATS and time.monotonic() > until)
        group.broadcast(enough, 0)
        if int(enough):
            break
    wrong = int((tensor != pattern * ranks + ranks * (ranks - 1) // 2).sum())
    return {"rank": rank, **_rates(times[_WARM_UP:], count * 4, ranks), "wrong": wrong}


def _wait(torch: Any, device: ProbeDevice) -> None:
    if device.is_gpu:
        torch.cuda.synchronize(device.index)


def _rates(times_s: list[float], payload_bytes: int, ranks: int) -> dict[str, Any]:
    times = sorted(times_s)
    work = 2.0 * (ranks - 1) / ranks * payload_bytes
    middle = times[len(times) // 2]
    return {"median": work / middle, "best": work / times[0], "worst": work / times[-1], "windows": len(times)}


def _sockets(request: dict[str, Any]) -> dict[str, Any]:
    """Sum over two processes: each sends its half to the other, adds, and sends the sum back.

    An array is one long integer of 64-bit elements that never carry into each other.
    """
    half = request["payload_bytes"] // 16 * 8
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        die_with_parent()
        here.close()
        _partner(there, half)
        os._exit(0)
    there.close()
    mine = _elements(half, 1)
    expected = (int.from_bytes(mine, "little") + int.from_bytes(_elements(half, 2), "little")).to_bytes(half, "little")
    times: list[float] = []
    wrong, until = 0, time.monotonic() + request["seconds"]
    while time.monotonic() < until or len(times) < _MIN_REPEATS:
        started = time.perf_counter()
        total = _exchange(here, mine, half, first=True)
        times.append(time.perf_counter() - started)
        wrong += sum(one != other for one, other in zip(total, (expected, expected)))
    here.close()
    os.waitpid(child, 0)
    lane = {"rank": 0, **ProbeDevice().facts(), **_rates(times, 2 * half, 2), "wrong": wrong}
    return {"engine": "sockets", "ranks": 2, "payload_bytes": 2 * half, "lanes": [lane]}


def _partner(peer: socket.socket, half: int) -> None:
    mine = _elements(half, 2)
    try:
        while True:
            _exchange(peer, mine, half, first=False)
    except (EOFError, OSError):
        return


def _exchange(peer: socket.socket, mine: bytes, half: int, first: bool) -> tuple[bytes, bytes]:
    """Sum two halves with the partner and return both; the one that sends first waits second, so that neither blocks."""
    if first:
        peer.sendall(mine)
        theirs = _receive(peer, half)
    else:
        theirs = _receive(peer, half)
        peer.sendall(mine)
    total = (int.from_bytes(mine, "little") + int.from_bytes(theirs, "little")).to_bytes(half, "little")
    if first:
        peer.sendall(total)
        return total, _receive(peer, half)
    other = _receive(peer, half)
    peer.sendall(total)
    return total, other


def _receive(peer: socket.socket, count: int) -> bytes:
    found = bytearray(count)
    view = memoryview(found)
    while view:
        got = peer.recv_into(view)
        if got == 0:
            raise EOFError
        view = view[got:]
    return bytes(found)


def _elements(count: int, offset: int) -> bytes:
    block = b"".join((i % 1021 + offset).to_bytes(8, "little") for i in range(min(count // 8, 4096)))
    return (block * (count // len(block) + 1))[:count]
