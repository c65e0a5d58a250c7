"""What is done with a model, and what one parameter weighs then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, get_args

from cordee.job.plan_table import PlanCheckpointing, PlanPrecision, PlanStrategy, PlanTask

TASKS: tuple[str, ...] = get_args(PlanTask)
PRECISIONS: tuple[str, ...] = get_args(PlanPrecision)
CHECKPOINTINGS: tuple[str, ...] = get_args(PlanCheckpointing)
FROZEN = ("int8", "int4", "nf4")  # weights of such precisions are not trained
STRATEGIES: tuple[str, ...] = get_args(PlanStrategy)


class OptimizerBytes(NamedTuple):
    """What an optimizer holds for each parameter, in bytes, in fp32 but for `8bit`: all the time, and on top while it steps."""

    states: float
    step: float = 0


OPTIMIZERS: dict[str, OptimizerBytes] = {
    "adamw": OptimizerBytes(8, 4),  # foreach copies all parameters
    "adamw-fused": OptimizerBytes(8),
    "adamw-8bit": OptimizerBytes(2 + 8 / 256),  # two states of a byte, a scale for 256 of each (bitsandbytes)
    "sgd": OptimizerBytes(4),  # momentum
    "sgd-plain": OptimizerBytes(0),
    "adafactor": OptimizerBytes(0.02, 4),  # a row and a column for each matrix; one update at a time
    "muon": OptimizerBytes(4),  # momentum; embeddings and norms by AdamW are 8 and not counted as such
    "lamb": OptimizerBytes(8, 4),  # an update of the parameters' size
    "lars": OptimizerBytes(4),
}


@dataclass(frozen=True)
class Workload:
    """What is done with the model.

    Attributes:
        task: of TASKS; `inference` has no gradients and a cache of keys and values for `sequence` tokens.
        precision: of PRECISIONS; `bf16` and `fp16` are autocast over fp32 parameters, `bf16-pure` parameters in bf16,
            `fp8` matrices in fp8 over bf16 activations; `int8`, `int4` and `nf4` are of frozen weights.
        micro_batch: sequences, or images, of one rank in one forward; `batch`: of all ranks in one step.
        sequence: tokens of one sequence.
        checkpointing: of activations.
        rank: of LoRA matrices on queries and values.
        compiled: whether torch.compile fuses what stands between matrices.
        offload: whether optimizer states lie in the host's memory; `offload_activations`: whether what blocks keep for backward does.
        step_in_backward: whether each parameter steps as soon as its gradient is there; `chunked_loss`: whether logits of a part of the tokens exist at once.
        flash: whether attention keeps no matrix of sequence times sequence.
        on_gpu: whether it runs on GPUs, whose context counts; else the rank's Python and its libraries do.
    """

    task: str = "train"
    precision: str = "bf16"
    optimizer: str = "adamw"
    micro_batch: int = 1
    batch: int | None = None
    sequence: int = 2048
    checkpointing: str = "none"
    rank: int = 8
    compiled: bool = False
    offload: bool = False
    offload_activations: bool = False
    step_in_backward: bool = False
    chunked_loss: bool = False
    flash: bool = True
    on_gpu: bool = True

    @property
    def trains(self) -> bool:
        """Whether there are gradients."""
        return self.task != "inference"

    @property
    def activation_bytes(self) -> int:
        """Bytes of one number of an activation."""
        return 4 if self.precision in ("fp32", "tf32") else 2

    @property
    def parameter_bytes(self) -> float:
        """Bytes of one parameter that is held, and not quantized."""
        if self.task == "qlora":
            return 2
        pure = self.precision == "bf16-pure" or (not self.trains and self.precision != "fp32")
        if self.task == "lora":
            pure = self.precision not in ("fp32", "tf32")
        return 2 if pure and self.precision != "tf32" else 4

    @property
    def quantized(self) -> str:
        """The precision in which frozen weights are held, if it is not that of computing."""
        if self.task == "qlora":
            return "nf4"
        known = FROZEN if self.trains else (*FROZEN, "fp8")
        return self.precision if self.precision in known and self.task != "train" else ""

    @property
    def state_scale(self) -> float:
        """How large optimizer states are beside those of fp32 parameters."""
        return 0.5 if self.precision == "bf16-pure" and self.optimizer != "adamw-8bit" else 1.0

    @property
    def casts(self) -> bool:
        """Whether autocast keeps copies of matrices in 16 bit beside fp32 parameters."""
        return self.trains and self.task == "train" and self.precision in ("bf16", "fp16", "fp8")
