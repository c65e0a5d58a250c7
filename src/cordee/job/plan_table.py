"""What a job says of its model, so that its memory is known before it is submitted: the table `[plan]`."""

from __future__ import annotations

from typing import Literal

from cordee.core.documents.fields import Count, Document

PlanTask = Literal["train", "lora", "qlora", "inference"]
PlanPrecision = Literal["fp32", "tf32", "bf16", "fp16", "bf16-pure", "fp8", "int8", "int4", "nf4"]
PlanOptimizer = Literal["adamw", "adamw-fused", "adamw-8bit", "sgd", "sgd-plain", "adafactor", "muon", "lamb", "lars"]
PlanStrategy = Literal["ddp", "zero1", "zero2", "fsdp", "hsdp"]
PlanCheckpointing = Literal["none", "selective", "full"]


class PlanTable(Document):
    """`[plan]`: what is known of the model, for `cordee plan` and for what `cordee check` says of memory."""

    model: str | None = None
    """A config.json, a TOML file with a table [model], or a function FILE.py:NAME that returns the model; without it, the script is traced."""
    task: PlanTask = "train"
    """What is done with it."""
    precision: PlanPrecision = "bf16"
    """Of computing; `bf16` and `fp16` are autocast over fp32 parameters, `bf16-pure` holds them in bf16; `int8`, `int4`, `nf4`: of weights, for inference and LoRA."""
    optimizer: PlanOptimizer = "adamw"
    """What steps; `adamw` is PyTorch's default."""
    micro_batch: Count = 1
    """Samples of one rank in one forward."""
    batch: Count | None = None
    """Samples of all ranks in one step; without it, one micro-batch of each."""
    sequence: Count = 2048
    """Tokens of one sample."""
    checkpointing: PlanCheckpointing = "none"
    """Which activations are computed again in backward."""
    lora_rank: Count = 8
    """The rank of LoRA's matrices."""
    compiled: bool = False
    """Whether the model goes through torch.compile."""
    offload: bool = False
    """Whether optimizer states lie in the host's memory."""
    offload_activations: bool = False
    """Whether what blocks keep for backward lies there."""
    step_in_backward: bool = False
    """Whether each parameter steps as soon as its gradient is there."""
    chunked_loss: bool = False
    """Whether the loss is computed in chunks, so that logits of a part of the tokens exist at once."""
    strategy: PlanStrategy | None = None
    """How ranks divide the model; without it as a traced script does it, else `ddp`."""
