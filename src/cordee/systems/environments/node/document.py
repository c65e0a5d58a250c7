"""The canonical document of an environment: what every engine, and nothing but it, goes by."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Mapping, Optional, Sequence

from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.node.patches import patched

SCHEMA = "cordee.environment/1"
SQUASHFS_FLAG = "sqsh"


@dataclass(frozen=True)
class ContainerMount:
    """One mount.

    Attributes:
        source: an absolute path of the host; a squashfs file with the flag `sqsh`.
        target: an absolute path inside.
        flags: as the EDF has them: `ro`, `rw`, `sqsh`, propagation (`private`, `rprivate`, `slave`, ...), `nosuid`, ...
    """

    source: str
    target: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ContainerRoot:
    """Where the root of a container comes from.

    Attributes:
        kind: `host`, the machine's own root, no container; `folder`, a plain root folder; `squashfs`, a file to mount;
            `entered`, what the job's place starts it in.
        path: of the folder or file; empty for `host`; of `entered` what the place is given: a path, or an address.
    """

    kind: str
    path: str = ""


@dataclass(frozen=True)
class Environment:
    """An environment, resolved: nothing in it is inherited, relative or to be expanded.

    Attributes:
        name: of the EDF, for people.
        image: as the EDF has it after expansion; empty: no container, the host's own root.
        workdir: where commands begin; None: where the image says.
        entrypoint: whether commands are handed to the image's entrypoint.
        writable: whether the root can be written to; what is written is gone when the container ends.
        mounts: in the order in which they are made.
        devices: CDI names (`nvidia.com/gpu=all`) or paths below /dev.
        env: variables; an empty value unsets one.
        annotations: dotted keys.
        root: where the image lies on this machine; None: not looked up yet.
        config: what the image says of itself.
        startup: shell commands that run inside before anything else does; what they export holds for all that follows.
        startup_s: they may take so long together.
        overlay: a folder of the host that keeps what is written to the root; empty: it is gone with the container.
        accounts: names of users of the host that the root has to know beside whoever runs it.
        patches: what views do to variables, over the image's and below those of `env`, as `node.patches` has them.
    """

    name: str
    image: str = ""
    workdir: Optional[str] = None
    entrypoint: bool = False
    writable: bool = True
    mounts: tuple[ContainerMount, ...] = ()
    devices: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    root: Optional[ContainerRoot] = None
    config: ImageConfig = field(default_factory=ImageConfig)
    startup: tuple[str, ...] = ()
    startup_s: float = 600.0
    overlay: str = ""
    accounts: tuple[str, ...] = ()
    patches: tuple[tuple[str, str, str], ...] = ()

    def variables(self, host: Mapping[str, str], left: Sequence[tuple[str, str, str]] = ()) -> dict[str, str]:
        """Return the whole environment of a command: what the EDF sets goes before views, these before the image, the image
        before the host; `left` is what the start-up commands have changed, over all of it."""
        merged = {**patched({**host, **self.config.env}, self.patches), **self.env}
        return patched({key: value for key, value in merged.items() if self.env.get(key) != ""}, left)

    def begins_in(self, default: str = "/") -> str:
        """Return where commands begin: the EDF's workdir, else the image's, else `default`."""
        return self.workdir or self.config.workdir or default

    def command(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return what is to be executed for `argv`: through the entrypoint where asked; an image's own command for none."""
        argv = argv or self.config.command
        return (*self.config.entrypoint, *argv) if self.entrypoint else argv

    def document(self) -> dict[str, Any]:
        """Return the JSON document, `cordee.environment/1`."""
        return {"schema": SCHEMA, **asdict(self)}


def environment_of(document: Mapping[str, Any]) -> Environment:
    """Return the environment that a JSON document describes.

    Raises:
        ValueError: it is of another schema.
    """
    if document.get("schema") != SCHEMA:
        raise ValueError(f"not {SCHEMA}: {document.get('schema')!r}")
    root, config = document["root"], document["config"]
    return Environment(
        name=document["name"],
        image=document["image"],
        workdir=document["workdir"],
        entrypoint=document["entrypoint"],
        writable=document["writable"],
        mounts=tuple(
            ContainerMount(each["source"], each["target"], tuple(each["flags"])) for each in document["mounts"]
        ),
        devices=tuple(document["devices"]),
        env=dict(document["env"]),
        annotations=dict(document["annotations"]),
        root=ContainerRoot(root["kind"], root["path"]) if root else None,
        config=ImageConfig(
            env=dict(config["env"]),
            entrypoint=tuple(config["entrypoint"]),
            command=tuple(config["command"]),
            workdir=config["workdir"],
            architecture=config["architecture"],
            digest=config["digest"],
        ),
        startup=tuple(document["startup"]),
        startup_s=float(document["startup_s"]),
        overlay=document["overlay"],
        accounts=tuple(document["accounts"]),
        patches=tuple((each[0], each[1], each[2]) for each in document["patches"]),
    )
