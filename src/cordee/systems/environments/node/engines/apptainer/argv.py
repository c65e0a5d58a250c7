"""A container as Apptainer is told of it: pure functions, from an environment to argument vectors."""

from __future__ import annotations

from cordee.systems.environments.node.document import SQUASHFS_FLAG, ContainerMount, Environment
from cordee.systems.environments.node.engines._base import EngineError

# Of the person and the host nothing but what is asked for; /tmp, /proc, /sys and /dev are the host's.
_BARE = ("--no-mount=home,cwd,hostfs,bind-paths", "--cleanenv", "--no-eval")
_FLAGS = ("ro", "rw", "bind", "rbind", SQUASHFS_FLAG)
_NVIDIA = "nvidia.com/gpu"


def exec_words(environment: Environment, argv: tuple[str, ...], workdir: str, gpus: tuple[str, ...] = ()) -> list[str]:
    """Return the words after `apptainer` that run one command.

    Args:
        environment: with its root.
        argv: the command.
        workdir: where it begins.
        gpus: options for the machine's GPUs, `--nv` and `--rocm`.

    Raises:
        EngineError: Apptainer cannot be told this.
    """
    return ["exec", *_options(environment, gpus), f"--pwd={workdir}", _root(environment), *argv]


def start_words(environment: Environment, name: str, gpus: tuple[str, ...] = ()) -> list[str]:
    """Return the words that start an instance, a container for many commands.

    Raises:
        EngineError: Apptainer cannot be told this.
    """
    return ["instance", "start", *_options(environment, gpus), _root(environment), name]


def stop_words(name: str) -> list[str]:
    """Return the words that end an instance with all that runs in it."""
    return ["instance", "stop", "--signal=KILL", name]


def enter_words(name: str, argv: list[str], workdir: str) -> list[str]:
    """Return the words that run a command in an instance."""
    return ["exec", "--cleanenv", "--no-eval", f"--pwd={workdir}", f"instance://{name}", *argv]


def _root(environment: Environment) -> str:
    root = environment.root
    if root is None:
        raise EngineError(
            "the image of the environment has not been looked up", given=environment.image, next="cordee env pull"
        )
    if root.kind == "host":
        raise EngineError("Apptainer runs images, and this environment names none", next="--engine namespace")
    return root.path


def _options(environment: Environment, gpus: tuple[str, ...]) -> list[str]:
    words = list(_BARE)
    if environment.writable:
        words.append("--writable-tmpfs")
    _refuse_devices(environment)
    words += gpus
    return words + [f"--bind={_bind(mount)}" for mount in environment.mounts]


def _bind(mount: ContainerMount) -> str:
    given = ":".join([mount.source, mount.target, "+".join(mount.flags)])
    for flag in mount.flags:
        if flag not in _FLAGS:
            raise EngineError(
                "Apptainer does not know this flag of a mount",
                given=given,
                allowed=list(_FLAGS),
                next="--engine namespace",
            )
    if any(mark in mount.source + mount.target for mark in ",:"):
        raise EngineError(
            "Apptainer cannot mount paths with a colon or a comma", given=given, next="--engine namespace"
        )
    if SQUASHFS_FLAG in mount.flags:
        return f"{mount.source}:{mount.target}:image-src=/,ro"
    return f"{mount.source}:{mount.target}:{'ro' if 'ro' in mount.flags else 'rw'}"


def _refuse_devices(environment: Environment) -> None:
    """Raise for devices that are not there anyway: Apptainer binds the host's /dev, and GPUs by options of its own."""
    for device in environment.devices:
        if device.startswith("/dev/") or device == f"{_NVIDIA}=all":
            continue
        raise EngineError(
            "Apptainer cannot be told of this device",
            given=device,
            allowed=["paths below /dev, which is the host's", f"{_NVIDIA}=all"],
            next="--engine namespace",
        )
