"""Hooks by their names, imported when asked for."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Callable, Iterator, Mapping, Optional

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import EngineError, MissingCapability
from cordee.systems.environments.node.hooks._base import Hook
from cordee.systems.environments.node.hooks.oci import asked_annotations

PREFIX = "com.hooks."
HOOKS: dict[str, str] = {
    "aws_ofi_nccl": "cordee.systems.environments.node.hooks.fabric:OfiNcclHook",
    "cxi": "cordee.systems.environments.node.hooks.fabric:CxiHook",
    "dcgm": "cordee.systems.environments.node.hooks.fabric:DcgmHook",
    "ldcache": "cordee.systems.environments.node.hooks.fabric:LibraryCacheHook",
    "nvidia_cuda_mps": "cordee.systems.environments.node.hooks.mps:MpsHook",
    "slurm": "cordee.systems.environments.node.hooks.slurm:SlurmHook",
    "ssh": "cordee.systems.environments.node.hooks.ssh:SshHook",
}


def find_hook(name: str) -> Optional[Hook]:
    """Return the hook of that name; None: there is none."""
    if name not in HOOKS:
        return None
    module, _, attribute = HOOKS[name].partition(":")
    hook: Hook = getattr(import_module(module), attribute)()
    return hook


def settings_of(annotations: Mapping[str, str], name: str) -> dict[str, str]:
    """Return the annotations of one hook, by the last part of their names."""
    before = f"{PREFIX}{name}."
    return {key[len(before) :]: value for key, value in annotations.items() if key.startswith(before)}


def is_on(annotations: Mapping[str, str], name: str) -> bool:
    """Return whether a hook is asked for."""
    return annotations.get(f"{PREFIX}{name}.enabled", "").lower() == "true"


def asked_hooks(environment: Environment) -> Iterator[tuple[Hook, dict[str, str]]]:
    """Yield the hooks that an environment asks for and that are there, with their settings."""
    for name in HOOKS:
        hook = find_hook(name) if is_on(environment.annotations, name) else None
        if hook is not None:
            stack = {
                f"netstack.{key}": value for key, value in settings_of(environment.annotations, "netstack").items()
            }
            yield hook, {**settings_of(environment.annotations, name), **stack}


def lacking(environment: Environment, host: Mapping[str, str]) -> Iterator[tuple[Hook, MissingCapability]]:
    """Yield what this machine lacks for the hooks that an environment asks for."""
    for hook, settings in asked_hooks(environment):
        for missing in hook.missing(settings, host):
            yield hook, missing


def hooked(environment: Environment, host: Mapping[str, str], warn: Callable[[str], None]) -> Environment:
    """Return the environment with what its hooks bring.

    Args:
        environment: as it was resolved.
        host: the machine's variables.
        warn: takes a line about each hook that lacks something and can be done without.

    Raises:
        EngineError: this machine lacks something that a hook requires.
    """
    of_the_site = list(asked_annotations(host)) if any(asked_hooks(environment)) else []
    for hook, settings in asked_hooks(environment):
        if any(re.search(pattern, f"{PREFIX}{hook.name}.enabled") for pattern in of_the_site):
            continue  # the machine has its own, which the engine runs
        missing = hook.missing(settings, host)
        if missing and hook.required:
            text = f"the hook {hook.name} cannot be run here: {missing[0].text}"
            raise EngineError(text, given=missing[0].given, next=missing[0].next)
        if missing:
            warn(f"the hook {hook.name} is left out: {missing[0].text}")
        else:
            environment = hook.apply(environment, settings, host)
    return environment
