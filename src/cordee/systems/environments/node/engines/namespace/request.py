"""What is asked of the engine, as words of a command line.

No value of a variable is among them: command lines can be read by everyone. A thousand mounts fit.
"""

from __future__ import annotations

from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Optional

# What an EDF can say of a mount; `rw`, `bind` and `rbind` are what is done anyway.
MOUNT_FLAGS = (
    "ro",
    "rw",
    "sqsh",
    "bind",
    "rbind",
    "nosuid",
    "nodev",
    "noexec",
    "private",
    "rprivate",
    "slave",
    "rslave",
    "shared",
    "rshared",
    "unbindable",
    "runbindable",
)


class ContainerRequest:
    """One container, and the command in it.

    Attributes:
        kind: of the root: `host`, `folder` or `squashfs`.
        path: of the root; empty for `host`.
        writable: whether the root can be written to.
        mounts: (source, target, flags) in the order in which they are made.
        devices: CDI names or paths.
        workdir: where the command begins; None: at the root.
        argv: the command.
    """

    __slots__ = ("argv", "devices", "kind", "mounts", "path", "workdir", "writable")

    def __init__(self, kind: str, path: str = "", writable: bool = True) -> None:
        self.kind = kind
        self.path = path
        self.writable = writable
        self.mounts: list[tuple[str, str, tuple[str, ...]]] = []
        self.devices: list[str] = []
        self.workdir: Optional[str] = None
        self.argv: list[str] = []

    def words(self) -> list[str]:
        """Return the words that `request_of` reads."""
        words = ["--root", self.kind, self.path]
        if not self.writable:
            words.append("--read-only")
        for source, target, flags in self.mounts:
            words += ["--mount", source, target, "+".join(flags)]
        for device in self.devices:
            words += ["--device", device]
        if self.workdir is not None:
            words += ["--workdir", self.workdir]
        return [*words, "--", *self.argv] if self.argv else words


def request_of(words: Iterable[str]) -> ContainerRequest:
    """Return what `ContainerRequest.words` wrote.

    Raises:
        Refused: words that it does not write.
    """
    request = ContainerRequest("host")
    rest = iter(words)
    try:
        for word in rest:
            if word == "--root":
                request.kind, request.path = next(rest), next(rest)
            elif word == "--read-only":
                request.writable = False
            elif word == "--mount":
                source, target, flags = next(rest), next(rest), next(rest)
                request.mounts.append((source, target, tuple(flag for flag in flags.split("+") if flag)))
            elif word == "--device":
                request.devices.append(next(rest))
            elif word == "--workdir":
                request.workdir = next(rest)
            elif word == "--":
                request.argv = list(rest)
            else:
                raise EngineRefused("the engine was called with a word it does not know", given=word)
    except StopIteration:
        raise EngineRefused("the engine was called with too few words", given=word) from None
    return request
