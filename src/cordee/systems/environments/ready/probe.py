"""Run inside an environment, by its own Python, as `python -c`: what it has, and whether ranks of it reach each other.

It prints lines of JSON that begin with a mark. As one rank it takes part in a collective and prints how that went.
"""

import json
import os
import subprocess
import sys
import time

MARK = "cordee-probe "
SIZE, ROUNDS, RANK_S = 1 << 22, 5, 90.0


def tell(**found: object) -> None:
    print(MARK + json.dumps(found), flush=True)


def look() -> list:  # type: ignore[type-arg]
    tell(what="python", version=sys.version.split()[0], path=sys.executable)
    found = []
    try:
        import torch

        gpus = torch.cuda.device_count()
        found.append("torch")
        built = (
            "ROCm " + torch.version.hip
            if torch.version.hip
            else "CUDA " + torch.version.cuda
            if torch.version.cuda
            else "CPU"
        )
        model = torch.cuda.get_device_name(0) if gpus else ""
        tell(what="torch", version=torch.__version__, built=built, gpus=gpus, model=model)
        tell(what="compute", **multiply(gpus > 0))
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError):
            tell(what="torch", error=repr(error))
    try:
        import jax

        devices = jax.local_devices()
        found.append("jax")
        kinds = sorted({device.platform for device in devices})
        tell(what="jax", version=jax.__version__, built=" ".join(kinds), gpus=sum(d.platform != "cpu" for d in devices))
    except Exception as error:
        if not isinstance(error, ModuleNotFoundError):
            tell(what="jax", error=repr(error))
    return found


def multiply(gpu: bool) -> dict:  # type: ignore[type-arg]
    """Multiply matrices on one device, as layers do; the first time does not count."""
    import torch

    device, size, kind = ("cuda", 8192, torch.bfloat16) if gpu else ("cpu", 1024, torch.float32)
    one = torch.ones(size, size, device=device, dtype=kind)
    rates = []
    for _ in range(ROUNDS + 1):
        began = time.time()
        for _ in range(4):
            torch.mm(one, one)
        if gpu:
            torch.cuda.synchronize()
        rates.append(4 * 2 * size**3 / (time.time() - began))
    return {"kind": str(kind).rpartition(".")[2], "flops": rates[1:]}


def collective(ranks: int) -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks), NCCL_DEBUG="INFO")
    code = sys.orig_argv[sys.orig_argv.index("-c") + 1] if hasattr(sys, "orig_argv") else os.environ["CORDEE_PROBE"]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, "rank"],
            env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            universal_newlines=True,
        )
        for rank in range(ranks)
    ]
    until, said = time.time() + RANK_S, []
    for process in started:
        try:
            said.append(process.communicate(timeout=max(1.0, until - time.time()))[0])
        except subprocess.TimeoutExpired:
            for each in started:
                each.kill()
            tell(what="collective", error=f"{ranks} ranks did not reach each other within {RANK_S:.0f} s")
            return
    text = "".join(said)
    codes = [process.returncode for process in started]
    networks = [line.split("Using network", 1)[1].strip() for line in text.splitlines() if "Using network" in line]
    results = [json.loads(line[len(MARK) :]) for line in text.splitlines() if line.startswith(MARK)]
    if any(codes) or not results:
        last = [line for line in text.splitlines() if line.strip() and not line.startswith(MARK)][-1:]
        tell(what="collective", error=f"a rank ended with exit code {max(codes, key=abs)}: " + "".join(last)[:300])
    else:
        tell(what="collective", ranks=ranks, network=networks[0] if networks else "", **results[0])


def rank() -> None:
    import torch
    import torch.distributed as dist

    gpu = torch.cuda.is_available()
    number, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", number) if gpu else torch.device("cpu")
    dist.init_process_group("nccl" if gpu else "gloo", rank=number, world_size=world)
    data = torch.ones(SIZE, device=device)
    dist.all_reduce(data)
    assert float(data[0]) == world, "the sum is wrong"
    moved, rates = 2 * (world - 1) / world * data.numel() * data.element_size(), []
    for _ in range(ROUNDS):
        began = time.time()
        dist.all_reduce(data)
        if gpu:
            torch.cuda.synchronize()
        rates.append(moved / (time.time() - began))
    if number == 0:
        tell(backend="nccl" if gpu else "gloo", bytes_per_s=rates)
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        rank()
    elif "torch" in look() and int(sys.argv[1]) > 1:
        import torch

        collective(torch.cuda.device_count() if torch.cuda.device_count() > 1 else int(sys.argv[1]))
