"""`com.hooks.nvidia_cuda_mps`: NVIDIA's Multi-Process Service, one for the processes of a container."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Mapping

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import MissingCapability
from cordee.systems.environments.node.hooks._base import Hook
from cordee.systems.environments.node.hooks.host_program import host_program

_CONTROL = "nvidia-cuda-mps-control"
_FOLDERS = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/nvidia-mps-log"}


class MpsHook(Hook):
    """Starts the service inside, before anything else; it ends with the container."""

    name = "nvidia_cuda_mps"

    def missing(self, settings: Mapping[str, str], host: Mapping[str, str]) -> list[MissingCapability]:
        found = []
        if host_program(_CONTROL) is None:
            text = f"{_CONTROL} is not installed on this machine"
            found.append(MissingCapability("mps", text, "install it with NVIDIA's driver, or take the annotation out"))
        if not os.path.exists(host.get("CORDEE_HOST_ROOT", "") + "/dev/nvidiactl"):
            text = "this machine has no NVIDIA GPU"
            found.append(MissingCapability("gpu", text, "run it where there is one, or take the annotation out"))
        return found

    def apply(self, environment: Environment, settings: Mapping[str, str], host: Mapping[str, str]) -> Environment:
        env = {**_FOLDERS, **environment.env}
        folders = " ".join(f'"${name}"' for name in _FOLDERS)
        start = f"mkdir -p {folders} && {_CONTROL} -d"
        return replace(environment, env=env, startup=(start, *environment.startup))
