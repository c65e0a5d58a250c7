"""The ground truths: labelled workloads, and what a score must say of each. Bands were set before anything was measured.

Half of the workloads are for tuning rules, half are held out: rules are judged on workloads that nobody looked at meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from cordee.core.errors import UsageError

TUNED, HELD_OUT = "tuned", "held out"


@dataclass(frozen=True)
class Band:
    """Where the mean of a quantity over the labelled time must lie.

    Attributes:
        quantity: `time`, `breadth`, `depth`, `score`, a standard metric (mean over devices, or sum over ranks), or
            `host_to_device_bytes_per_second`.
        low, high: bounds; offsets from or factors of what the workload told of itself, where `told` names that.
        how: `between`, `about` (told + low .. told + high) or `times` (told x low .. told x high).
        models: a regular expression: the band is asked of devices whose model has it, empty: of all.
    """

    quantity: str
    low: float
    high: float
    how: Literal["between", "about", "times"] = "between"
    told: str = ""
    models: str = ""

    def bounds(self, told: dict[str, float]) -> tuple[float, float] | None:
        """Return the bounds given what a workload told, None when it did not tell it."""
        if self.how == "between":
            return self.low, self.high
        if self.told not in told:
            return None
        known = told[self.told]
        return (known + self.low, known + self.high) if self.how == "about" else (known * self.low, known * self.high)

    def words(self) -> str:
        """Return it for a person: `gpu_sm_ratio 0.95..1`."""
        if self.how == "between":
            return f"{self.quantity} {self.low:g}..{self.high:g}"
        if self.how == "about":
            return f"{self.quantity} = {self.told} {self.low:+g}..{self.high:+g}"
        return f"{self.quantity} = {self.told} x {self.low:g}..{self.high:g}"


@dataclass(frozen=True)
class LabelledWorkload:
    """One labelled workload.

    Attributes:
        classes: the right ones, the most fitting first; empty: no class is right or wrong.
        program, given: what runs, and its parameters.
    """

    name: str
    title: str
    device: Literal["gpu", "cpu"]
    program: str
    half: str
    classes: tuple[str, ...]
    bands: tuple[Band, ...]
    given: dict[str, Any] = field(default_factory=dict)


_PCIE5 = r"\bH[12]00\b"


def _about(quantity: str, told: str, margin: float) -> Band:
    """Return a band around what the workload tells of itself."""
    return Band(quantity, -margin, margin, "about", told)


def _spin(name: str, share: float, half: str, classes: tuple[str, ...]) -> LabelledWorkload:
    bands = (_about("gpu_sm_ratio", "sm_ratio", 0.02), Band("time", 0.95, 1.0))
    title = f"idle blocks on {share:.0%} of the SMs" if share else "one idle block on one SM"
    return LabelledWorkload(name, title, "gpu", "hold", half, classes, bands, {"share": share})


def _warps(name: str, warps: int, half: str) -> LabelledWorkload:
    bands = (_about("gpu_occupancy_ratio", "occupancy_ratio", 0.03), Band("gpu_sm_ratio", 0.95, 1.0))
    return LabelledWorkload(
        name, f"{warps} idle warps on each SM", "gpu", "hold", half, ("latency",), bands, {"warps": warps}
    )


def _duty(name: str, duty: float, half: str, classes: tuple[str, ...]) -> LabelledWorkload:
    bands = (_about("time", "duty", 0.03), Band("time", duty - 0.05, duty + 0.05))
    return LabelledWorkload(
        name, f"bf16 GEMM for {duty:g} of the time", "gpu", "gemm", half, classes, bands, {"duty": duty}
    )


GPU_TRUTHS = (
    LabelledWorkload(
        "gemm-bf16",
        "bf16 GEMM of 16,384, back to back",
        "gpu",
        "gemm",
        TUNED,
        ("compute",),
        (Band("gpu_sm_ratio", 0.95, 1.0), Band("gpu_tensor_ratio", 0.7, 1.0), Band("time", 0.97, 1.0)),
    ),
    LabelledWorkload(
        "triad",
        "a = b + c/2 over 8 GB",
        "gpu",
        "triad",
        HELD_OUT,
        ("memory",),
        (Band("gpu_dram_ratio", 0.8, 0.95), Band("time", 0.97, 1.0)),
    ),
    _spin("spin-one-sm", 0.0, TUNED, ("mixed",)),
    _spin("spin-quarter", 0.25, HELD_OUT, ("mixed",)),
    _spin("spin-half", 0.5, TUNED, ("mixed",)),
    _spin("spin-all", 1.0, HELD_OUT, ("latency",)),
    _warps("warps-8", 8, HELD_OUT),
    _warps("warps-16", 16, TUNED),
    _warps("warps-32", 32, HELD_OUT),
    _warps("warps-64", 64, TUNED),
    _duty("duty-25", 0.25, HELD_OUT, ("mixed", "idle")),
    _duty("duty-50", 0.5, TUNED, ("mixed",)),
    _duty("duty-75", 0.75, HELD_OUT, ("mixed", "compute")),
    LabelledWorkload(
        "host-to-device",
        "copies of pinned memory to the GPU",
        "gpu",
        "copies",
        TUNED,
        ("transfer",),
        (
            Band("host_to_device_bytes_per_second", 0.95, 1.2, "times", "bytes_per_second"),
            Band("host_to_device_bytes_per_second", 45e9, 60e9, models=_PCIE5),
        ),
    ),
    LabelledWorkload(
        "tiny-kernels",
        "kernels on one number each",
        "gpu",
        "tiny",
        HELD_OUT,
        ("launch",),
        (Band("gpu_sm_ratio", 0.0, 0.4),),
    ),
    LabelledWorkload(
        "loader-decoding",
        "decoding workers that a GPU waits for",
        "gpu",
        "decoding",
        TUNED,
        ("input",),
        (Band("time", 0.0, 0.6),),
    ),
    LabelledWorkload(
        "loader-sleeping",
        "a loader that sleeps and says nothing",
        "gpu",
        "sleeping",
        HELD_OUT,
        ("idle", "mixed"),
        (Band("time", 0.02, 0.25),),
    ),
    LabelledWorkload(
        "loader-sleeping-logged",
        "a loader that sleeps, with data_wait_s logged",
        "gpu",
        "sleeping",
        TUNED,
        ("input",),
        (Band("time", 0.02, 0.25),),
        {"log_waits": True},
    ),
    LabelledWorkload(
        "fma-fp64",
        "fp64 multiply-adds in registers",
        "gpu",
        "fma",
        HELD_OUT,
        ("compute",),
        (Band("gpu_fp64_ratio", 0.8, 1.0),),
        {"bits": 64},
    ),
    LabelledWorkload(
        "fma-fp32",
        "fp32 multiply-adds in registers",
        "gpu",
        "fma",
        TUNED,
        ("compute",),
        (Band("gpu_fp32_ratio", 0.8, 1.0),),
        {"bits": 32},
    ),
    LabelledWorkload(
        "checkpoint",
        "torch.save over and over",
        "gpu",
        "saving",
        HELD_OUT,
        ("checkpoint",),
        (Band("time", 0.0, 0.05), Band("io_write_bytes_per_second", 0.75, 1.25, "times", "bytes_per_second")),
    ),
    LabelledWorkload(
        "pointer-chase",
        "each load waits for the one before",
        "gpu",
        "chase",
        TUNED,
        ("latency",),
        (Band("gpu_sm_ratio", 0.8, 1.0), Band("depth", 0.0, 0.6)),
    ),
)

# What other programs take of a core is not this one's fault: its own CPU time is the truth.
_USED = Band("cpu_cores_ratio", 0.9, 1.1, "times", "cpu_cores")
CPU_TRUTHS = (
    *(
        LabelledWorkload(
            f"core-duty-{round(100 * share)}",
            f"one core for {share:g} of the time",
            "cpu",
            "duty",
            half,
            (),
            (_about("time", "cpu_cores", 0.03), _USED),
            {"share": share},
        )
        for share, half in ((0.25, HELD_OUT), (0.5, TUNED), (0.75, HELD_OUT))
    ),
    LabelledWorkload(
        "core-one",
        "one busy core",
        "cpu",
        "busy",
        TUNED,
        (),
        (_USED, _about("breadth", "breadth", 0.03)),
        {"processes": 1},
    ),
    LabelledWorkload(
        "core-all", "all cores busy", "cpu", "busy", HELD_OUT, (), (_USED, _about("breadth", "breadth", 0.03))
    ),
    LabelledWorkload(
        "core-idle", "a process that sleeps", "cpu", "pause", TUNED, ("idle",), (Band("time", 0.0, 0.05),)
    ),
    LabelledWorkload(
        "core-sleeping-logged",
        "a loader that sleeps, with data_wait_s logged",
        "cpu",
        "sleeping",
        HELD_OUT,
        ("input",),
        (Band("time", 0.0, 0.6),),
        {"device": "cpu", "log_waits": True},
    ),
    LabelledWorkload(
        "core-checkpoint",
        "torch.save over and over",
        "cpu",
        "saving",
        TUNED,
        (),
        (Band("io_write_bytes_per_second", 0.75, 1.25, "times", "bytes_per_second"),),
        {"device": "cpu"},
    ),
)


def truths(device: str, only: str = "") -> list[LabelledWorkload]:
    """Return the workloads of `gpu` or `cpu`, of `only` (names with commas between) where given.

    Raises:
        UsageError: there is no workload of that name.
    """
    all_of_device = GPU_TRUTHS if device == "gpu" else CPU_TRUTHS
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    names = [truth.name for truth in all_of_device]
    for name in wanted:
        if name not in names:
            raise UsageError(f"there is no workload of this name for the {device.upper()}", given=name, allowed=names)
    return [truth for truth in all_of_device if not wanted or truth.name in wanted]
