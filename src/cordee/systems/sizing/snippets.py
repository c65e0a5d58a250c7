"""Code for a layout: FSDP2 and accelerate. What has no such code says so by name."""

from __future__ import annotations

from cordee.systems.sizing.memory import Layout
from cordee.systems.sizing.workload import Workload

_TYPES = {"bf16": "torch.bfloat16", "fp8": "torch.bfloat16", "fp16": "torch.float16", "bf16-pure": "torch.bfloat16"}


def snippet(kind: str, layout: Layout, workload: Workload) -> str:
    """Return code for a layout, as text; for one that `kind` has none for, a comment that says so.

    Args:
        kind: `fsdp2`: a function of PyTorch that divides a model in place; `accelerate`: the file of `accelerate launch`.
    """
    if (layout.tp, layout.pp, layout.cp, layout.ep) != (1, 1, 1, 1):
        return (
            f"# No code for {layout.name}: TP, PP, CP and EP change the model itself; see torchtitan or Megatron-LM.\n"
        )
    return _fsdp2(layout, workload) if kind == "fsdp2" else _accelerate(layout, workload)


def _fsdp2(layout: Layout, workload: Workload) -> str:
    if layout.fsdp == 1 and layout.zero:
        return f"# No code for {layout.name} by FSDP2: use torch.distributed.optim.ZeroRedundancyOptimizer, or FSDP2 instead.\n"
    lines = ["import torch", "from torch import nn"]
    if layout.gpus == 1:
        return "\n".join([*lines, "", "", "def parallel(model, device):", "    return model.to(device)", ""])
    kind = _TYPES.get(workload.precision)
    names = "('replicate', 'shard')" if layout.fsdp > 1 and layout.dp > 1 else "('shard',)" if layout.fsdp > 1 else None
    shape = f"({layout.dp}, {layout.fsdp})" if layout.dp > 1 and layout.fsdp > 1 else f"({layout.fsdp},)"
    if names is None:
        lines += ["from torch.nn.parallel import DistributedDataParallel", "", "", "def parallel(model, device):"]
        lines += ["    return DistributedDataParallel(model.to(device), gradient_as_bucket_view=True)", ""]
        return "\n".join(lines)
    lines += ["from torch.distributed.device_mesh import init_device_mesh"]
    checkpoints = workload.checkpointing == "full"
    if checkpoints:
        lines += ["from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper"]
    lines += ["from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard", "", ""]
    lines += ["def parallel(model, device):"]
    lines += [f"    mesh = init_device_mesh(torch.device(device).type, {shape}, mesh_dim_names={names})"]
    policy = (
        f"MixedPrecisionPolicy(param_dtype={kind}, reduce_dtype=torch.float32)" if kind else "MixedPrecisionPolicy()"
    )
    lines += [f"    policy = {policy}"]
    lines += ["    for blocks in [part for part in model.modules() if isinstance(part, nn.ModuleList)]:"]
    lines += ["        for number, block in enumerate(blocks):"]
    if checkpoints:
        lines += ["            blocks[number] = block = checkpoint_wrapper(block)"]
    lines += ["            fully_shard(block, mesh=mesh, mp_policy=policy)"]
    lines += ["    return fully_shard(model, mesh=mesh, mp_policy=policy)", ""]
    return "\n".join(lines)


def _accelerate(layout: Layout, workload: Workload) -> str:
    mixed = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}.get(workload.precision, "no")
    if layout.zero and layout.fsdp == 1:
        zero = {"zero_stage": layout.zero, "offload_optimizer_device": "cpu" if workload.offload else "none"}
        kind, config = "DEEPSPEED", ["deepspeed_config:", *(f"  {key}: {value}" for key, value in zero.items())]
    elif layout.fsdp > 1:
        kind = "FSDP"
        config = ["fsdp_config:", "  fsdp_version: 2", "  fsdp_reshard_after_forward: true"]
        config += ["  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"]
        config += [f"  fsdp_activation_checkpointing: {'true' if workload.checkpointing == 'full' else 'false'}"]
        config += [f"  fsdp_offload_params: {'true' if workload.offload else 'false'}"]
    else:
        kind, config = ("MULTI_GPU" if layout.gpus > 1 else "NO"), []
    head = ["compute_environment: LOCAL_MACHINE", f"distributed_type: {kind}", f"mixed_precision: '{mixed}'"]
    return "\n".join([*head, f"num_processes: {layout.gpus}", *config, ""])
