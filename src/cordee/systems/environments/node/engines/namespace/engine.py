"""The namespace engine behind the seam: environments into command lines, and what a machine lacks."""

from __future__ import annotations

import json
import os
from typing import Optional

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import Engine, EngineError, EngineLaunch, MissingCapability
from cordee.systems.environments.node.engines.namespace.boot import first_words
from cordee.systems.environments.node.engines.namespace.request import MOUNT_FLAGS, ContainerRequest
from cordee.systems.environments.node.hooks.oci import oci_hooks


class NamespaceEngine(Engine):
    """Runs commands in namespaces of their own. Needs nothing but the kernel, and squashfuse for squashfs without root."""

    name = "namespace"

    def missing(self, environment: Environment) -> list[MissingCapability]:
        from cordee.systems.environments.node.engines.namespace.capabilities import missing

        return missing(environment)

    def argv(self, environment: Environment, launch: EngineLaunch) -> list[str]:
        request = _request(environment)
        request.workdir = launch.workdir or _workdir(environment)
        request.argv = list(environment.command(launch.argv))
        request.startup, request.startup_s = list(environment.startup), environment.startup_s
        if not request.argv:
            raise EngineError(
                "there is no command to run, and the image names none", given=environment.image, next="give a command"
            )
        return [*first_words(), "run", *request.words()]

    def hold(self, environment: Environment) -> list[str]:
        request = _request(environment)
        request.workdir = _workdir(environment)
        return [*first_words(), "hold", *request.words()]


def _workdir(environment: Environment) -> Optional[str]:
    if environment.root is not None and environment.root.kind == "host":
        return environment.workdir
    return environment.begins_in()


def _request(environment: Environment) -> ContainerRequest:
    root = environment.root
    if root is None:
        raise EngineError(
            "the image of the environment has not been looked up", given=environment.image, next="cordee env pull"
        )
    request = ContainerRequest(root.kind, root.path, environment.writable)
    for mount in environment.mounts:
        for flag in mount.flags:
            if flag not in MOUNT_FLAGS:
                raise EngineError(
                    "the namespace engine does not know this flag of a mount",
                    given=f"{mount.source}:{mount.target}:{flag}",
                    allowed=list(MOUNT_FLAGS),
                    next="take it out, or take another engine: --engine podman",
                )
        request.mounts.append((mount.source, mount.target, mount.flags))
    request.devices = list(environment.devices)
    request.overlay, request.accounts = environment.overlay, list(environment.accounts)
    if root.kind != "host":
        hooks = oci_hooks(environment, os.environ)
        request.hooks = [json.dumps(hook) for hook in hooks]
        if hooks or environment.devices:
            request.annotations = [f"{name}={value}" for name, value in environment.annotations.items()]
    return request
