"""Podman behind the seam: environments into command lines, and what a machine lacks."""

from __future__ import annotations

from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import Engine, EngineError, EngineLaunch, MissingCapability
from cordee.systems.environments.node.engines.namespace.request import ContainerRequest
from cordee.systems.environments.node.engines.podman.argv import MOUNT_FLAGS
from cordee.systems.environments.node.engines.podman.boot import first_words
from cordee.systems.environments.node.engines.podman.question import PodmanQuestion

_RUNTIME = "runc"


class PodmanEngine(Engine):
    """Runs commands in containers that podman opens: its hooks, its CDI devices and a site's settings of it count.

    Needs podman 4 and an OCI runtime; a user needs user namespaces, but no subordinate ids and no storage.
    """

    name = "podman"

    def missing(self, environment: Environment) -> list[MissingCapability]:
        from cordee.systems.environments.node.engines.podman.capabilities import missing

        return missing(environment)

    def argv(self, environment: Environment, launch: EngineLaunch) -> list[str]:
        asked = asked_for(environment)
        asked.request.workdir = launch.workdir or environment.begins_in()
        asked.request.argv = list(environment.command(launch.argv))
        asked.request.startup, asked.request.startup_s = list(environment.startup), environment.startup_s
        if not asked.request.argv:
            raise EngineError(
                "there is no command to run, and the image names none", given=environment.image, next="give a command"
            )
        return [*first_words(), "run", *asked.words()]

    def hold(self, environment: Environment) -> list[str]:
        asked = asked_for(environment)
        asked.request.workdir = environment.begins_in()
        return [*first_words(), "hold", *asked.words()]


def asked_for(environment: Environment) -> PodmanQuestion:
    """Return what podman is asked for an environment.

    Raises:
        EngineError: podman cannot do it.
    """
    import shutil

    root = environment.root
    if root is None:
        raise EngineError(
            "the image of the environment has not been looked up", given=environment.image, next="cordee env pull"
        )
    if root.kind == "host":
        raise EngineError("podman runs images, and this environment names none", next="--engine namespace")
    request = ContainerRequest(root.kind, root.path, environment.writable)
    for mount in environment.mounts:
        for flag in mount.flags:
            if flag not in MOUNT_FLAGS:
                raise EngineError(
                    "podman does not know this flag of a mount",
                    given=f"{mount.source}:{mount.target}:{flag}",
                    allowed=list(MOUNT_FLAGS),
                    next="take it out of the EDF",
                )
        if ":" in mount.source or ":" in mount.target:
            given = f"{mount.source}:{mount.target}"
            raise EngineError("podman cannot mount paths with a colon", given=given, next="--engine namespace")
        request.mounts.append((mount.source, mount.target, mount.flags))
    request.devices, request.accounts = list(environment.devices), list(environment.accounts)
    runtime = _RUNTIME if shutil.which(_RUNTIME) else ""
    asked = PodmanQuestion(shutil.which("podman") or "podman", runtime, request)
    asked.annotations = sorted(environment.annotations.items())
    return asked
