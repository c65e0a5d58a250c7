"""What made workloads do, phase by phase: the levels that the ground truths predict, and what real trainings mix of them.

Half of the scenarios are for tuning rules, half are held out; no variant of a workload is in both.
"""

from __future__ import annotations

from dataclasses import dataclass

Levels = dict[str, float]

# What a GPU's counters say while a kind of work is on it.
GEMM: Levels = {
    "graphics": 1.0,
    "sm": 0.98,
    "occupancy": 0.22,
    "tensor": 0.86,
    "tensor_hmma": 0.86,
    "fp32": 0.04,
    "dram": 0.28,
}
ATTENTION: Levels = {
    "graphics": 1.0,
    "sm": 0.92,
    "occupancy": 0.3,
    "tensor": 0.66,
    "tensor_hmma": 0.66,
    "fp32": 0.14,
    "dram": 0.36,
}
TRAINING: Levels = {
    "graphics": 0.98,
    "sm": 0.9,
    "occupancy": 0.25,
    "tensor": 0.5,
    "tensor_hmma": 0.5,
    "fp32": 0.06,
    "dram": 0.33,
    "nvlink": 4e10,
}
TRAINING_LARGE: Levels = {**TRAINING, "sm": 0.86, "tensor": 0.47, "tensor_hmma": 0.47, "dram": 0.29}
ELEMENTWISE: Levels = {"graphics": 1.0, "sm": 0.96, "occupancy": 0.75, "fp32": 0.12, "dram": 0.86}
DECODE: Levels = {
    "graphics": 1.0,
    "sm": 0.83,
    "occupancy": 0.3,
    "tensor": 0.09,
    "tensor_hmma": 0.09,
    "fp32": 0.1,
    "dram": 0.68,
}
FP64: Levels = {"graphics": 1.0, "sm": 1.0, "occupancy": 0.98, "fp64": 0.94, "dram": 0.01}
FP32: Levels = {"graphics": 1.0, "sm": 1.0, "occupancy": 0.98, "fp32": 0.93, "dram": 0.01}
STENCIL64: Levels = {"graphics": 1.0, "sm": 0.97, "occupancy": 0.5, "fp64": 0.74, "dram": 0.5}
COLLECTIVE: Levels = {"graphics": 1.0, "sm": 0.17, "occupancy": 0.04, "fp32": 0.02, "dram": 0.1, "nvlink": 1.6e11}
WAITING_PEER: Levels = {"graphics": 1.0, "sm": 0.12, "occupancy": 0.02, "dram": 0.01, "nvlink": 1e9}
POLLING: Levels = {"graphics": 1.0, "sm": 0.08, "occupancy": 0.01}
SPINNING_ALL: Levels = {"graphics": 1.0, "sm": 1.0, "occupancy": 0.02}
TINY: Levels = {"graphics": 0.62, "sm": 0.02, "occupancy": 0.001, "fp32": 0.005, "dram": 0.003}
SMALL: Levels = {
    "graphics": 0.75,
    "sm": 0.26,
    "occupancy": 0.06,
    "tensor": 0.05,
    "tensor_hmma": 0.05,
    "fp32": 0.05,
    "dram": 0.1,
}
CHASE: Levels = {"graphics": 1.0, "sm": 1.0, "occupancy": 0.06, "fp32": 0.02, "dram": 0.09}
GATHER: Levels = {"graphics": 1.0, "sm": 0.93, "occupancy": 0.45, "fp32": 0.1, "dram": 0.38}
SPIN_HALF: Levels = {"graphics": 1.0, "sm": 0.5, "occupancy": 0.02, "fp32": 0.02}
COPY_IN: Levels = {"graphics": 0.02, "sm": 0.01, "dram": 0.02, "pcie_in": 5.2e10}
OFFLOAD: Levels = {
    "graphics": 0.3,
    "sm": 0.2,
    "occupancy": 0.1,
    "tensor": 0.15,
    "tensor_hmma": 0.15,
    "dram": 0.12,
    "pcie_in": 4.0e10,
    "pcie_out": 3.6e10,
}
REST: Levels = {}

# What the ranks' processes and their node do meanwhile. Cores are of the 16 that each rank has.
CALM: Levels = {"cores": 1.2, "thread": 0.75, "processes": 9}
SPINNING: Levels = {"cores": 1.3, "thread": 1.0, "processes": 9}
LAUNCHING: Levels = {"cores": 1.1, "thread": 0.99, "processes": 3}
DECODING: Levels = {"cores": 15.4, "thread": 0.97, "processes": 17, "pressure_cpu": 0.3}
DECODING_FEW: Levels = {"cores": 4.3, "thread": 0.98, "processes": 5}
READING: Levels = {"cores": 1.6, "thread": 0.3, "processes": 9, "pressure_io": 0.45, "read": 3.5e8}
WRITING: Levels = {"cores": 0.7, "thread": 0.5, "processes": 9, "pressure_io": 0.3, "write": 1.4e9}
WRITING_SLOWLY: Levels = {"cores": 0.4, "thread": 0.3, "processes": 9, "pressure_io": 0.5, "write": 2.2e8}
ASLEEP: Levels = {"cores": 0.02, "thread": 0.02, "processes": 2}


@dataclass(frozen=True)
class StepPhase:
    """One part of a step: its share of the step's time, and what GPU and host do meanwhile."""

    share: float
    gpu: Levels
    host: Levels


@dataclass(frozen=True)
class Scenario:
    """One made workload.

    Attributes:
        right: the class that is right, then others that would not be wrong.
        half: `tuned` or `held out`.
        step_s: seconds of one step, through all phases.
        straggler: the last GPU does this share (0-1] of the work in the same time, and the others wait for it inside collectives.
        waits_logged: whether the ranks log the time of phases in which the GPU rests, as `data_wait_s`.
    """

    name: str
    right: tuple[str, ...]
    half: str
    phases: tuple[StepPhase, ...]
    step_s: float = 0.7
    gpus: int = 4
    straggler: float = 1.0
    waits_logged: bool = False
    memory_ratio: float = 0.7


def _one(name: str, right: str, half: str, gpu: Levels, host: Levels, *others: str, **more: object) -> Scenario:
    return Scenario(name, (right, *others), half, (StepPhase(1.0, gpu, host),), **more)  # type: ignore[arg-type]


def _steps(
    name: str,
    right: str,
    half: str,
    *phases: tuple[float, Levels, Levels],
    others: tuple[str, ...] = (),
    **more: object,
) -> Scenario:
    made = tuple(StepPhase(*phase) for phase in phases)
    return Scenario(name, (right, *others), half, made, **more)  # type: ignore[arg-type]


T, H = "tuned", "held out"
SCENARIOS = (
    _one("gemm", "compute", T, GEMM, SPINNING),
    _one("language-model", "compute", T, TRAINING, SPINNING, gpus=8),
    _steps("transformer", "compute", T, (0.9, ATTENTION, CALM), (0.1, COLLECTIVE, CALM)),
    _one("fp64-fma", "compute", T, FP64, CALM, gpus=1),
    _one("language-model-large", "compute", H, TRAINING_LARGE, SPINNING, gpus=8),
    _one("fp32-fma", "compute", H, FP32, CALM, gpus=1),
    _steps("pretraining", "compute", H, (0.62, GEMM, SPINNING), (0.28, ATTENTION, SPINNING), (0.1, ELEMENTWISE, SPINNING), step_s=3.1),
    _one("stencil-fp64", "compute", H, STENCIL64, CALM),
    _one("element-wise", "memory", T, ELEMENTWISE, SPINNING),
    _steps("optimiser-bound", "memory", T, (0.8, ELEMENTWISE, CALM), (0.2, ATTENTION, CALM), step_s=1.9),
    _one("decoding-tokens", "memory", H, DECODE, CALM, gpus=1),
    _steps("graph-network", "memory", H, (0.88, ELEMENTWISE, CALM), (0.12, COLLECTIVE, CALM)),
    _one("copies", "transfer", T, COPY_IN, CALM, gpus=1),
    _steps("offloaded-states", "transfer", H, (0.85, OFFLOAD, CALM), (0.15, ATTENTION, CALM), others=("mixed",)),
    _one("copies-spinning", "transfer", H, COPY_IN, SPINNING),
    _steps("all-reduce", "communication", T, (0.1, GEMM, SPINNING), (0.9, COLLECTIVE, SPINNING)),
    _one("peers-wait", "communication", T, WAITING_PEER, SPINNING, "hang", gpus=8),
    _one("rank-missing", "hang", T, POLLING, SPINNING, gpus=8),
    _one("rank-missing-all-sms", "hang", H, SPINNING_ALL, SPINNING),
    _steps("pipeline-bubble", "communication", H, (0.14, ATTENTION, SPINNING), (0.86, WAITING_PEER, SPINNING), step_s=5.3),
    _steps("all-to-all", "communication", H, (0.08, GEMM, CALM), (0.92, COLLECTIVE, CALM), gpus=8),
    _one("tiny-kernels", "launch", T, TINY, LAUNCHING, gpus=1),
    _one("eager-small-model", "launch", T, SMALL, LAUNCHING),
    _steps("reinforcement", "launch", H, (0.8, SMALL, LAUNCHING), (0.2, TINY, LAUNCHING), gpus=1, step_s=0.05),
    _steps("decoding-images", "input", T, (0.3, ATTENTION, DECODING), (0.7, REST, DECODING)),
    _steps("slow-storage", "input", T, (0.25, ATTENTION, READING), (0.75, REST, READING), step_s=2.3),
    _steps("few-workers", "input", H, (0.35, GEMM, DECODING_FEW), (0.65, REST, DECODING_FEW)),
    _steps("storage-stalls", "input", H, (0.45, ATTENTION, CALM), (0.55, REST, READING), step_s=9.0),
    _steps("waits-logged", "input", H, (0.3, ATTENTION, CALM), (0.7, REST, ASLEEP), waits_logged=True),
    _one("notebook", "idle", T, REST, ASLEEP, gpus=1, memory_ratio=0.3),
    _one("hung", "idle", H, REST, CALM),
    _steps("sleeping-loader", "idle", H, (0.05, ATTENTION, CALM), (0.95, REST, ASLEEP), others=("mixed",)),
    _one("checkpoint", "checkpoint", T, REST, WRITING),
    _one("checkpoint-slow", "checkpoint", H, REST, WRITING_SLOWLY),
    _one("pointer-chase", "latency", T, CHASE, CALM, gpus=1),
    _one("spin-all", "latency", T, {"graphics": 1.0, "sm": 1.0, "occupancy": 0.02, "fp32": 0.03}, CALM, gpus=1),
    _one("sparse-gather", "latency", H, GATHER, CALM),
    _steps("duty-50", "mixed", T, (0.5, GEMM, CALM), (0.5, REST, CALM), gpus=1),
    _one("half-the-sms", "mixed", T, SPIN_HALF, CALM, gpus=1),
    _steps("duty-40-bursts", "mixed", H, (0.4, GEMM, CALM), (0.6, REST, CALM), step_s=4.1),
    _steps("ragged", "mixed", H, (0.4, ATTENTION, CALM), (0.3, SPIN_HALF, CALM), (0.3, REST, CALM), step_s=1.3),
    # Those in which the cause is only half of the picture.
    _steps("mild-input", "input", T, (0.68, ATTENTION, DECODING), (0.32, REST, DECODING)),
    _steps("half-collective", "communication", T, (0.5, GEMM, SPINNING), (0.5, COLLECTIVE, SPINNING)),
    _steps("fused-less", "memory", T, (0.6, ELEMENTWISE, CALM), (0.4, GEMM, CALM)),
    _steps("mild-storage", "input", H, (0.66, GEMM, CALM), (0.34, REST, READING), step_s=2.7),
    _steps("exposed-reduce", "communication", H, (0.45, ATTENTION, CALM), (0.55, COLLECTIVE, CALM)),
    _steps("half-launched", "launch", H, (0.75, SMALL, LAUNCHING), (0.25, ATTENTION, LAUNCHING)),
    _steps("half-decoding", "memory", H, (0.7, DECODE, CALM), (0.3, ATTENTION, CALM), gpus=1),
    _steps("straggler", "communication", H, (0.15, GEMM, SPINNING), (0.85, WAITING_PEER, SPINNING), straggler=0.6),
)  # fmt: skip
