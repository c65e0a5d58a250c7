"""Whether a node has GPUs at all, told without the libraries that compute on them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple, Optional

_NVIDIA_DEVICE = re.compile(r"nvidia\d+$")
# An empty list of visible devices hides them all from the ranks (CUDA's and ROCm's documentation; Slurm sets NoDevFiles).
_HIDDEN = {"", "-1", "NoDevFiles"}
# What a rank's environment may say of its GPUs; a rank that is asked about later keeps these.
GPU_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "SLURM_JOB_ID",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "SLURM_GPUS_PER_TASK",
    "SLURM_TRES_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_TRES_BIND",
)
_LISTS = GPU_VARIABLES[:3]


class Listed(NamedTuple):
    """A list of visible devices: the variable that it stands in, what that says, and its entries; none: it hides all devices."""

    variable: str
    text: str
    entries: tuple[str, ...]


def listed(env: Mapping[str, str]) -> Optional[Listed]:
    """Return the list of visible devices that counts in an environment: CUDA's, HIP's or ROCm's; None: there is none.

    What an entry stands for, an index or the beginning of a UUID, is for those to say who know the devices.
    """
    name = next((name for name in _LISTS if name in env), None)
    if name is None:
        return None
    text = env[name].strip()
    return Listed(name, text, () if text in _HIDDEN else tuple(entry.strip() for entry in text.split(",")))


def gpu_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return of an environment what says something of GPUs."""
    return {name: env[name] for name in GPU_VARIABLES if name in env}


def gpus_told_by(root: str, env: Mapping[str, str]) -> Optional[str]:
    """Return what shows that the node has GPUs which the ranks may see, such as `/dev/nvidia0`; None: it has none.

    Args:
        root: where the host's /dev is seen.
        env: the ranks' environment: what hides all devices from them counts as none.
    """
    if hides_all(env):
        return None
    shown = gpu_device_file(root, env)
    if shown is not None:
        return shown
    count = _nvml_count()
    return f"NVML, which counts {count}" if count else None


def gpu_device_file(root: str, env: Mapping[str, str]) -> Optional[str]:
    """Return the device file of a GPU that the ranks may see, None without one; no library is asked, so nothing hangs."""
    if hides_all(env):
        return None
    try:
        names = sorted(os.listdir(os.path.join(root, "dev")))
    except OSError:
        return None
    for name in names:
        if _NVIDIA_DEVICE.match(name) or name == "kfd":
            return f"/dev/{name}"
    return None


def hides_all(env: Mapping[str, str]) -> bool:
    """Return whether an environment hides all devices."""
    found = listed(env)
    return found is not None and not found.entries


def _nvml_count() -> int:
    """Return the number of devices that NVML counts (nvmlDeviceGetCount_v2 of its API); 0 where it cannot tell."""
    import ctypes  # deferred: agents and commands that never ask it import this too

    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if library.nvmlInit_v2() != 0:
            return 0
        count = ctypes.c_uint(0)
        code = library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        library.nvmlShutdown()
    except (OSError, AttributeError):
        return 0
    return count.value if code == 0 else 0
