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
        annotations: of the environment, for hooks.
        hooks: OCI hooks, each a JSON text with `stage`, `path`, `args`, `env`, `timeout`.
        kind: of the root: `host`, `folder` or `squashfs`.
        path: of the root; empty for `host`.
        writable: whether the root can be written to.
        mounts: (source, target, flags) in the order in which they are made.
        devices: CDI names or paths.
        workdir: where the command begins; None: at the root.
        argv: the command.
        accounts: names of users of the host that the root has to know.
        overlay: the folder that keeps what is written to the root; empty: memory.
        startup: commands that run inside before the command.
        startup_s: they may take so long together.
    """

    __slots__ = (
        "accounts",
        "annotations",
        "argv",
        "devices",
        "hooks",
        "kind",
        "mounts",
        "overlay",
        "path",
        "startup",
        "startup_s",
        "workdir",
        "writable",
    )

    def __init__(self, kind: str, path: str = "", writable: bool = True) -> None:
        self.kind = kind
        self.path = path
        self.writable = writable
        self.mounts: list[tuple[str, str, tuple[str, ...]]] = []
        self.devices: list[str] = []
        self.workdir: Optional[str] = None
        self.argv: list[str] = []
        self.accounts: list[str] = []
        self.annotations: list[str] = []
        self.hooks: list[str] = []
        self.overlay = ""
        self.startup: list[str] = []
        self.startup_s = 600.0

    def words(self) -> list[str]:
        """Return the words that `request_of` reads."""
        words = ["--root", self.kind, self.path]
        if not self.writable:
            words.append("--read-only")
        for source, target, flags in self.mounts:
            words += ["--mount", source, target, "+".join(flags)]
        for device in self.devices:
            words += ["--device", device]
        for option, texts in (
            ("--account", self.accounts),
            ("--annotation", self.annotations),
            ("--hook", self.hooks),
        ):
            words += [word for text in texts for word in (option, text)]
        if self.overlay:
            words += ["--overlay", self.overlay]
        if self.startup:
            words += ["--startup-limit", str(self.startup_s)]
        for line in self.startup:
            words += ["--startup", line]
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
            elif word == "--account":
                request.accounts.append(next(rest))
            elif word == "--annotation":
                request.annotations.append(next(rest))
            elif word == "--hook":
                request.hooks.append(next(rest))
            elif word == "--overlay":
                request.overlay = next(rest)
            elif word == "--startup-limit":
                request.startup_s = float(next(rest))
            elif word == "--startup":
                request.startup.append(next(rest))
            elif word == "--workdir":
                request.workdir = next(rest)
            elif word == "--":
                request.argv = list(rest)
            else:
                raise EngineRefused("the engine was called with a word it does not know", given=word)
    except StopIteration:
        raise EngineRefused("the engine was called with too few words", given=word) from None
    return request
