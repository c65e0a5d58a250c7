"""What is asked of podman, as words of a command line: those of the embedded engine, and before them what only podman needs."""

from __future__ import annotations

from cordee.environment.engines.namespace.request import Request, request_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Asked:
    """One container of podman's.

    Attributes:
        podman: its path.
        runtime: the OCI runtime that it is told to use; empty: the one that it is configured with.
        place: a folder of this user, over which the container's own memory is mounted in its own namespace.
        annotations: (key, value), for hooks.
        request: root, mounts, devices, and the command.
    """

    __slots__ = ("annotations", "place", "podman", "request", "runtime")

    def __init__(self, podman: str, runtime: str, place: str, request: Request) -> None:
        self.podman = podman
        self.runtime = runtime
        self.place = place
        self.request = request
        self.annotations: list[tuple[str, str]] = []

    def words(self) -> list[str]:
        """Return the words that `asked_of` reads."""
        annotated = [f"{name}={value}" for name, value in self.annotations]
        return [self.podman, self.runtime, self.place, str(len(annotated)), *annotated, *self.request.words()]


def asked_of(words: Iterable[str]) -> Asked:
    """Return what `Asked.words` wrote."""
    rest = iter(words)
    podman, runtime, place, count = next(rest), next(rest), next(rest), int(next(rest))
    annotations = [next(rest).partition("=") for _ in range(count)]
    asked = Asked(podman, runtime, place, request_of(rest))
    asked.annotations = [(name, value) for name, _, value in annotations]
    return asked
