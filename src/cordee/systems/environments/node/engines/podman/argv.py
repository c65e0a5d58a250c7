"""A container as podman is told of it: a pure function, from what is wanted to an argument vector.

No value of a variable is among the words: command lines can be read by everyone, and commands bring their own environment.
"""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.podman.pause import COMMAND

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordee.systems.environments.node.engines.podman.question import PodmanQuestion

# Commands enter the container with limits of their own; its first process, which opens nothing, needs these.
_LIMITS = ("--ulimit=nofile=64:64", "--ulimit=nproc=64:64")
# The container is the person's own, on the person's own machine: it separates files, and protects nobody from anybody.
_AS_OUTSIDE = ("--network=host", "--uts=host", "--cgroupns=host")
_UNCONFINED = ("--security-opt=seccomp=unconfined", "--security-opt=label=disable", "--security-opt=unmask=ALL")
_OF_PLACES = ("ro", "rw", "nosuid", "nodev", "noexec", "bind", "rbind")
_PROPAGATION = ("private", "rprivate", "slave", "rslave", "shared", "rshared", "unbindable", "runbindable")
MOUNT_FLAGS = ("sqsh", *_OF_PLACES, *_PROPAGATION)


def podman_words(
    asked: PodmanQuestion, host_processes: bool, host_ipc: bool, nodes: Sequence[tuple[str, str]] = ()
) -> list[str]:
    """Return the argument vector that opens a container.

    Args:
        asked: what is wanted. The root lies in `asked.place`/root, and the squashfs file of mount N in /files/N.
        host_processes: whether it shares the host's process ids.
        host_ipc: whether it can share the host's message queues; shared memory it does anyway.
        nodes: (source on the host, target) of device files, and of folders of them.

    Raises:
        Refused: podman cannot be told this.
    """
    place = asked.place
    words = [asked.podman, f"--root={place}/store", f"--runroot={place}/state", f"--tmpdir={place}/tmp"]
    # In memory that is gone with the container, so that nothing is left, shared, or on a slow file system.
    words += ["--storage-driver=vfs", "--events-backend=none", "--cgroup-manager=cgroupfs"]
    if asked.runtime:
        words.append(f"--runtime={asked.runtime}")
    words += ["run", "--detach", "--rm", "--log-driver=none", f"--pidfile={place}/pid", "--preserve-fds=2"]
    words += ["--http-proxy=false", *_LIMITS, *_UNCONFINED, *_AS_OUTSIDE]
    if host_processes:
        words.append("--pid=host")
    words.append("--ipc=host" if host_ipc else "--ipc=private")
    if not asked.request.writable:
        words += ["--read-only", "--read-only-tmpfs=false"]
    words += [f"--annotation={name}={value}" for name, value in asked.annotations]
    words += _volumes(asked, host_ipc, nodes)
    words += [f"--device={device}" for device in asked.request.devices]
    return [*words, "--rootfs", f"{place}/root", COMMAND]


def _volumes(asked: PodmanQuestion, host_ipc: bool, nodes: Sequence[tuple[str, str]]) -> list[str]:
    """Return the mounts; of several on one target the last, which would hide the others, is left."""
    found = {target: _volume(source, target, ()) for source, target in nodes}
    if not host_ipc and os.path.isdir("/dev/shm"):
        found["/dev/shm"] = _volume("/dev/shm", "/dev/shm", ())
    found["/tmp"] = "--tmpfs=/tmp:rw,exec,nosuid,nodev,notmpcopyup,mode=1777"
    for number, (source, target, flags) in enumerate(asked.request.mounts):
        path = os.path.normpath(target)
        if "sqsh" in flags:
            source, flags = f"{asked.place}/files/{number}", (*flags, "ro")
        found.pop(path, None)
        found[path] = _volume(source, path, flags)
    return list(found.values())


def _volume(source: str, target: str, flags: tuple[str, ...]) -> str:
    for path in (source, target):
        if ":" in path:
            raise EngineRefused(
                "podman cannot mount paths with a colon", given=path, next="take another engine: --engine namespace"
            )
    kept = [flag for flag in dict.fromkeys(flags) if flag != "sqsh"]
    if "bind" not in kept and "rbind" not in kept:
        kept.insert(0, "rbind")
    if "ro" in kept and "rw" in kept:
        kept.remove("rw")
    if not any(flag in _PROPAGATION for flag in kept):
        kept.append("rslave")
    return f"--volume={source}:{target}:{','.join(kept)}"
