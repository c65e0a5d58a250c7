"""Code for a layout: FSDP2, accelerate, DeepSpeed, Megatron-LM. What has no such code says so by name."""

from __future__ import annotations

import json
import math

from cordee.systems.sizing.architecture import Architecture
from cordee.systems.sizing.layouts import Model
from cordee.systems.sizing.parallelism import Layout, micro_batches, pipeline_stages, tokens_of
from cordee.systems.sizing.workload import Workload

_TYPES = {"bf16": "torch.bfloat16", "fp8": "torch.bfloat16", "fp16": "torch.float16", "bf16-pure": "torch.bfloat16"}


def snippet(kind: str, layout: Layout, workload: Workload, model: Model | None = None) -> str:
    """Return code for a layout, as text; for one that `kind` has none for, a comment that says so.

    Args:
        kind: `fsdp2`: a function of PyTorch that divides a model in place, or cuts its layers into a pipeline; `accelerate`: the file of `accelerate launch`;
            `deepspeed`: its configuration; `megatron`: arguments of Megatron-LM's `pretrain_gpt.py`.
        model: whose sizes Megatron's arguments name, and whose layers stages of pipelines get.
    """
    if kind == "megatron":
        return _megatron(layout, workload, model)
    if (
        kind == "fsdp2"
        and layout.pp > 1
        and (layout.fsdp, layout.tp, layout.cp, layout.ep, layout.zero) == (1, 1, 1, 1, 0)
    ):
        return _pipeline(layout, workload, model)
    if (layout.tp, layout.pp, layout.cp, layout.ep) != (1, 1, 1, 1):
        return f"# No code for {layout.name}: TP, PP, CP and EP change the model itself; --snippet megatron has its arguments.\n"
    return {"fsdp2": _fsdp2, "accelerate": _accelerate, "deepspeed": _deepspeed}[kind](layout, workload)


def _deepspeed(layout: Layout, workload: Workload) -> str:
    if layout.fsdp > 1 and layout.dp > 1:
        return f"# No code for {layout.name} by DeepSpeed: its ZeRO 3 divides over all ranks; ask for --layout fsdp={layout.gpus}.\n"
    zero: dict[str, object] = {"stage": 3 if layout.fsdp > 1 else layout.zero, "overlap_comm": True}
    if workload.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    steps = micro_batches(workload, layout)
    config: dict[str, object] = {
        "train_micro_batch_size_per_gpu": workload.micro_batch,
        "gradient_accumulation_steps": steps,
        "train_batch_size": workload.micro_batch * steps * layout.replicas,
        "gradient_clipping": 1.0,
        "zero_optimization": zero,
    }
    if workload.precision in ("bf16", "bf16-pure", "fp8"):
        config["bf16"] = {"enabled": True}
    elif workload.precision == "fp16":
        config["fp16"] = {"enabled": True}
    if workload.checkpointing == "full":
        config["activation_checkpointing"] = {"partition_activations": False, "contiguous_memory_optimization": False}
    return json.dumps(config, indent=2) + "\n"


def _megatron(layout: Layout, workload: Workload, model: Model | None) -> str:
    """Arguments of Megatron-LM; FSDP2 is its distributed optimizer, which divides states over the same ranks, and no parameters."""
    if not isinstance(model, Architecture) or model.kind != "decoder":
        return "# No arguments for Megatron-LM: it trains decoders whose sizes are known; give a config.json or a table [model].\n"
    if layout.schedule != "1f1b":
        return f"# No arguments for {layout.name}: of Megatron-LM only forks have it; torch.distributed.pipelining has its schedules.\n"
    a, steps = model, micro_batches(workload, layout)
    words = [
        ("--num-layers", a.layers), ("--hidden-size", a.width), ("--num-attention-heads", a.heads),
        ("--ffn-hidden-size", a.ffn), ("--seq-length", tokens_of(a, workload)),
        ("--max-position-embeddings", max(a.positions, tokens_of(a, workload))),
        ("--micro-batch-size", workload.micro_batch), ("--global-batch-size", workload.micro_batch * steps * layout.replicas),
        ("--tensor-model-parallel-size", layout.tp), ("--pipeline-model-parallel-size", layout.pp),
    ]  # fmt: skip
    lines = [f"{name} {value}" for name, value in words]
    if a.kv_heads != a.heads:
        lines += ["--group-query-attention", f"--num-query-groups {a.kv_heads}"]
    if a.head_width * a.heads != a.width:
        lines += [f"--kv-channels {a.head_width}"]
    lines += ["--swiglu"] if a.gated else []
    lines += ["--disable-bias-linear"] if not a.biases else []
    lines += [] if a.tied else ["--untie-embeddings-and-output-weights"]
    lines += ["--position-embedding-type rope"] if not a.positions else []
    lines += ["--sequence-parallel"] if layout.tp > 1 else []
    lines += [f"--context-parallel-size {layout.cp}"] if layout.cp > 1 else []
    if a.experts:
        lines += [f"--num-experts {a.experts}", f"--moe-router-topk {a.experts_per_token}"]
        lines += [f"--expert-model-parallel-size {layout.ep}"] if layout.ep > 1 else []
    if layout.interleaved > 1 and layout.pp > 1:
        each = math.ceil(a.layers / layout.pp / layout.interleaved)
        lines += [f"--num-layers-per-virtual-pipeline-stage {each}"]
    lines += ["--use-distributed-optimizer"] if layout.zero or layout.fsdp > 1 else []
    lines += {
        "bf16": ["--bf16"],
        "bf16-pure": ["--bf16"],
        "fp16": ["--fp16"],
        "fp8": ["--bf16", "--fp8-format hybrid"],
    }.get(workload.precision, [])
    full = ["--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"]
    lines += {"full": full, "selective": ["--recompute-granularity selective"]}.get(workload.checkpointing, [])
    lines += ["--optimizer-cpu-offload"] if workload.offload else []
    return " \\\n".join(lines) + "\n"


def _fsdp2(layout: Layout, workload: Workload) -> str:
    if layout.fsdp == 1 and layout.zero:
        return f"# No code for {layout.name} by FSDP2: use torch.distributed.optim.ZeroRedundancyOptimizer, or FSDP2 instead.\n"
    lines = ["import torch", "from torch import nn"]
    if layout.gpus == 1:
        return "\n".join([*lines, "", "", "def parallel(model, device):", "    return model.to(device)", ""])
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
    kind = _TYPES.get(workload.precision)
    types = f"param_dtype={kind}, reduce_dtype=torch.float32" if kind else ""
    lines += [f"    policy = MixedPrecisionPolicy({types})"]
    lines += ["    for blocks in [part for part in model.modules() if isinstance(part, nn.ModuleList)]:"]
    lines += ["        for number, block in enumerate(blocks):"]
    if checkpoints:
        lines += ["            blocks[number] = block = checkpoint_wrapper(block)"]
    lines += ["            fully_shard(block, mesh=mesh, mp_policy=policy)"]
    lines += ["    return fully_shard(model, mesh=mesh, mp_policy=policy)", ""]
    return "\n".join(lines)


_PIPELINE = """import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import {kind}

LAYERS = {layers}  # of each part of the model, in its order
MICRO_BATCHES = {count}  # of one schedule.step(), which is given all of them at once


class Part(nn.Sequential):
    def forward(self, x):
        with torch.autocast(x.device.type, {cast}):
            return super().forward(x)


def parallel(layers, first, last, loss, device):
    # What trains a step, and the modules that this rank steps. step() takes the inputs on ranks with part 0, and target= and
    # losses=[] on those with the last part; gradients are those of the whole batch afterwards.
    mesh = init_device_mesh(torch.device(device).type, {shape}, mesh_dim_names=("stage", "replicate"))
    rank, stages = mesh.get_local_rank("stage"), []
    for number in {numbers}:
        begin = sum(LAYERS[:number])
        part = [first] * (number == 0) + list(layers[begin : begin + LAYERS[number]]) + [last] * (number == len(LAYERS) - 1)
        group = mesh.get_group("stage")
        stages.append(PipelineStage(Part(*part).to(device), number, len(LAYERS), torch.device(device), group=group))
    schedule = {kind}({given}, MICRO_BATCHES, loss_fn=loss)
    modules, others = nn.ModuleList(stage.submod for stage in stages), mesh.get_group("replicate")

    def step(*args, **kwargs):
        schedule.step(*args, **kwargs)
        for one in modules.parameters():
            torch.distributed.all_reduce(one.grad.div_(others.size()), group=others)

    return step, modules
"""


def _pipeline(layout: Layout, workload: Workload, model: Model | None) -> str:
    """A pipeline of torch.distributed.pipelining; FSDP2 loses gradients where those of weights come later (torch 2.13)."""
    if not isinstance(model, Architecture):
        return f"# No code for {layout.name}: the layers of the model are not known; give a config.json or a table [model].\n"
    pp, parts = layout.pp, layout.parts
    layers = [0] * (pp * parts)
    for rank, stage in enumerate(pipeline_stages(model, workload, layout)):
        for part in range(parts):
            number = 2 * pp - 1 - rank if layout.schedule == "zb-v" and part else rank + pp * part
            layers[number] = stage.layers // parts + (part < stage.layers % parts)
    names = {"zb-v": "ScheduleZBVZeroBubble", "zb-h1": "ScheduleInterleavedZeroBubble"}
    plain = "Schedule1F1B" if parts == 1 else "ScheduleInterleaved1F1B"
    kind = names.get(layout.schedule, plain)
    return _PIPELINE.format(
        kind=kind,
        layers=tuple(layers),
        count=micro_batches(workload, layout),
        shape=(pp, layout.dp),
        cast=_TYPES.get(workload.precision, "enabled=False") if workload.casts else "enabled=False",
        numbers=f"(rank, {2 * pp - 1} - rank)" if layout.schedule == "zb-v" else f"range(rank, len(LAYERS), {pp})",
        given="stages[0]" if kind == "Schedule1F1B" else "stages",
    )


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
