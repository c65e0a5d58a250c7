"""One of two Gloo ranks that train a model divided as `cordee plan --snippet fsdp2` divides it, or by tensor parallelism."""

# mypy: ignore-errors
from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys

_STEPS = 20

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def tensor_parallel(torch, model, device):
    """Divide a model over two ranks: matrices by heads, columns and rows, the vocabulary, and all else along the sequence.

    Each takes its part of its own weights: nothing is sent, of which Gloo's threads would keep a part for a while.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    mesh, pieces = init_device_mesh(device, (2,)), Shard(1)
    inputs = {"input_layouts": (pieces,), "desired_input_layouts": (Replicate(),)}
    ends = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=pieces),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=pieces, output_layouts=Shard(-1), use_local_output=False),
    }
    parallelize_module(model, mesh, ends, src_data_rank=None)
    for block in model.blocks:
        plan = dict.fromkeys(("mixing.query", "mixing.key", "mixing.value", "mlp.gate", "mlp.up"), ColwiseParallel())
        plan |= dict.fromkeys(("mixing.out", "mlp.down"), RowwiseParallel(output_layouts=pieces))
        plan |= dict.fromkeys(("first", "second"), SequenceParallel())
        plan |= {name: PrepareModuleInput(**inputs) for name in ("mixing", "mlp")}
        parallelize_module(block, mesh, plan, src_data_rank=None)
    return model


def main():
    """Print the highest that this rank's allocator held in a step, in bytes."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor.parallel import loss_parallel
    from truth import STEP, highest

    request = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")

    def call():
        model, inputs = runpy.run_path(request["path"])[request["function"]]()
        if request["code"]:
            space = {}
            exec(request["code"], space)  # the snippet that `cordee plan` prints
            model = space["parallel"](model, "cpu")
        else:
            model = tensor_parallel(torch, model, "cpu")
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        for _ in range(_STEPS):
            with torch.profiler.record_function(STEP):
                pass
            with loss_parallel() if not request["code"] else contextlib.nullcontext():
                model(*inputs).backward()
            optimizer.step()
            optimizer.zero_grad()

    print(json.dumps({"peak": highest(torch, call), "kept": None, "why": ""}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
