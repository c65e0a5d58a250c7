"""Annotations by which EDFs ask for hooks: `com.hooks.NAME.enabled`."""

from __future__ import annotations

from collections.abc import Mapping

from cordee.core.words import nearest
from cordee.systems.environments.node.hooks import PREFIX

# Of the hooks at CSCS: docs.cscs.ch, Container Engine, resources and hooks (August 2026); ldcache is of the Sarus Suite.
_KEYS = {
    "aws_ofi_nccl": ("enabled", "variant"),
    "cxi": ("enabled",),
    "dcgm": ("enabled",),
    "ldcache": ("enabled",),
    "netstack": ("name", "source", "version"),
    "nvidia_cuda_mps": ("enabled",),
    "slurm": ("enabled",),
    "ssh": ("authorize_ssh_key", "enabled", "port"),
}
KNOWN = tuple(f"{PREFIX}{hook}.{key}" for hook, keys in _KEYS.items() for key in keys)


def hooks_asked_for(annotations: Mapping[str, str]) -> list[str]:
    """Return the annotations that switch a hook on."""
    return [
        name
        for name, value in annotations.items()
        if name.startswith(PREFIX) and name.endswith(".enabled") and value.lower() == "true"
    ]


def nearest_known(name: str) -> str | None:
    """Return the annotation of a known hook that was probably meant, None where the name is one itself or like none."""
    if not name.startswith(PREFIX) or name in KNOWN:
        return None
    return nearest(name, KNOWN, 0.8)
