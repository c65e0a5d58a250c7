"""One of two nodes that exchange data by torch.distributed: NCCL (RCCL) where torch has a GPU, else Gloo."""

from __future__ import annotations

import math
import secrets
import socket
import time
from datetime import timedelta
from typing import Any, Callable

from cordee.machine.probes.common import Obstacle, ProbeDevice, Say, gpus, import_torch, serve
from cordee.wire.handshake import prove

_SHARES = 3
_WARM_UP = 2
_MARGIN_S = 1.0
_PAUSE_S = 0.05


def main() -> None:
    """Answer one request: `role`, `address`, `port`, `token`, `peer`, `seconds`, `payload_bytes`, `on_gpu`, `deadline_s`."""
    serve(run)


def run(request: dict[str, Any], say: Say) -> dict[str, Any]:
    """Return `{engine, device, model, there, back, allreduce}`, rates in bytes/s; `model` of the GPU, None where there is none.

    `there` is from the node that connects to the one that listens; `allreduce` the bus bandwidth of a sum over both.
    """
    until = time.monotonic() + request["deadline_s"] - 2 * request["seconds"]
    torch = import_torch()
    import torch.distributed as group

    # The first GPU that the ranks may see stands for its node.
    device = gpus(torch)[0] if request["on_gpu"] else ProbeDevice()
    engine = "nccl" if device.is_gpu else "gloo"
    rank = 0 if request["role"] == "listen" else 1
    patience = timedelta(seconds=max(1.0, until - time.monotonic() - _MARGIN_S))
    say({"begin": f"meeting {request['peer']}"})
    store = _meet(group, request, rank, patience)
    if device.is_gpu:
        torch.cuda.set_device(device.index)
    say({"begin": f"{engine} with {request['peer']}"})
    group.init_process_group(engine, store=store, rank=rank, world_size=2, timeout=patience)
    clock = _Clock(torch, group, device, request["seconds"] / _SHARES)
    tensor = torch.ones(max(1, request["payload_bytes"] // 4), dtype=torch.float32, device=device.torch_name)

    def pass_on(sender: int) -> None:
        if rank == sender:
            group.send(tensor, 1 - sender)
        else:
            group.recv(tensor, sender)

    size = tensor.numel() * 4
    return {
        "engine": engine,
        "device": device.label,
        "model": device.model if device.is_gpu else None,
        "there": size / clock.step_s(lambda: pass_on(1)),
        "back": size / clock.step_s(lambda: pass_on(0)),
        "allreduce": size / clock.step_s(lambda: group.all_reduce(tensor)),
    }


def _meet(group: Any, request: dict[str, Any], rank: int, patience: timedelta) -> Any:
    """Return the store that both ends share, once each has proved to the other that it knows the token."""
    peer = request["peer"]
    if rank == 1:
        _wait_for_listener(request, patience.total_seconds())
    try:
        store = group.TCPStore(request["address"], request["port"], 2, is_master=rank == 0, timeout=patience)
    except Exception as error:
        words = str(error).strip().splitlines()[0]
        if rank == 0 and "imed out" in words:
            raise Obstacle(f"{peer} did not come in time", "silent") from None
        raise Obstacle(f"cannot meet {peer} at {request['address']}:{request['port']}: {words}", "error") from None
    own = secrets.token_hex(16)
    token = request["token"].encode()
    try:
        store.set(f"nonce{rank}", own)
        other = store.get(f"nonce{1 - rank}").decode()
        store.set(f"proof{rank}", prove(token, f"pair rank {rank}", [own, other]).hex())
        given = store.get(f"proof{1 - rank}").decode()
    except Exception as error:
        raise Obstacle(f"{peer} said nothing: {str(error).strip().splitlines()[0]}", "timeout") from None
    if given != prove(token, f"pair rank {1 - rank}", [other, own]).hex():
        raise Obstacle(f"whoever came in place of {peer} does not know the token", "error")
    return store


def _wait_for_listener(request: dict[str, Any], patience_s: float) -> None:
    """Return once somebody listens there; the store itself would try for longer than it is told to."""
    until, last = time.monotonic() + patience_s, "no time was left"
    while (left := until - time.monotonic()) > 0:
        try:
            socket.create_connection((request["address"], request["port"]), timeout=min(2.0, left)).close()
            return
        except OSError as error:
            last = (error.strerror or str(error)).lower()
            time.sleep(_PAUSE_S)
    where = f"{request['address']}:{request['port']}"
    raise Obstacle(f"cannot reach {request['peer']} at {where} within {patience_s:.3g} s: {last}", "error")


class _Clock:
    """Times one step over both ranks, which do it equally often; the slower rank's time counts."""

    def __init__(self, torch: Any, group: Any, device: ProbeDevice, seconds: float) -> None:
        self._torch = torch
        self._group = group
        self._device = device
        self._seconds = seconds

    def step_s(self, step: Callable[[], None]) -> float:
        """Return the seconds of one step."""
        once = self._several(step, _WARM_UP)
        count = max(1, min(100_000, math.ceil(self._seconds / max(once, 1e-6))))
        return self._several(step, count)

    def _several(self, step: Callable[[], None], count: int) -> float:
        self._wait()
        started = time.perf_counter()
        for _ in range(count):
            step()
        self._wait()
        taken = self._torch.tensor([time.perf_counter() - started], device=self._device.torch_name)
        self._group.all_reduce(taken, op=self._group.ReduceOp.MAX)
        return float(taken[0]) / count

    def _wait(self) -> None:
        if self._device.is_gpu:
            self._torch.cuda.synchronize(self._device.index)
