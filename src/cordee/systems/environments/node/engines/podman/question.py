"""What is asked of podman, as words of a command line: those of the embedded engine, and before them what only podman needs."""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace.request import ContainerRequest, request_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class PodmanQuestion:
    """One container of podman's.

    Attributes:
        podman: its path.
        runtime: the OCI runtime that it is told to use; empty: the one that it is configured with.
        place: the folder that `place_of` names.
        annotations: (key, value), for hooks.
        request: root, mounts, devices, and the command.
    """

    __slots__ = ("annotations", "place", "podman", "request", "runtime")

    def __init__(self, podman: str, runtime: str, request: ContainerRequest, place: str = "") -> None:
        self.podman = podman
        self.runtime = runtime
        self.place = place
        self.request = request
        self.annotations: list[tuple[str, str]] = []

    def words(self) -> list[str]:
        """Return the words that `asked_of` reads."""
        annotated = [f"{name}={value}" for name, value in self.annotations]
        return [self.podman, self.runtime, str(len(annotated)), *annotated, *self.request.words()]


def asked_of(words: Iterable[str]) -> PodmanQuestion:
    """Return what `PodmanQuestion.words` wrote, at the place of whoever reads it."""
    rest = iter(words)
    podman, runtime, count = next(rest), next(rest), int(next(rest))
    annotations = [next(rest).partition("=") for _ in range(count)]
    asked = PodmanQuestion(podman, runtime, request_of(rest), place_of(os.geteuid()))
    asked.annotations = [(name, value) for name, _, value in annotations]
    return asked


def place_of(uid: int) -> str:
    """Return the folder of a user over which a container's own memory is mounted, in a namespace: others see it empty."""
    folders = ("/run",) if uid == 0 else (f"/run/user/{uid}", "/tmp")
    folder = next((each for each in folders if os.access(each, os.W_OK)), "/tmp")
    return f"{folder}/cordee-podman-{uid}"
