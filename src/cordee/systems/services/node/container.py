"""The container of a service under podman: what a machine lacks for it, what starts it, what runs beside it, and what ends it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path
from typing import Any, NamedTuple, Optional, Sequence

from cordee.runs.folder import write_atomically
from cordee.systems.services.node.location import GUARD, ServiceLocation
from cordee.systems.services.node.probe import words_of
from cordee.systems.services.node.texts import filled

# The image of this prefix is on this machine or nowhere.
_LOCAL = "localhost/"
_ANSWER_S = 20.0
# Beside what the program itself may take to end, until podman has killed it and put all away.
REMOVAL_S = 10.0
_MOST_FILES = 1 << 19
_MOST_PROCESSES = 1 << 15
_TUN = "/dev/net/tun"


class PodmanLack(NamedTuple):
    """Why podman cannot run a service here, and what to do about it."""

    text: str
    next: str


class PodmanMachine:
    """What podman says of this machine and this user.

    Attributes:
        trouble: why it does not work at all; None: it does.
    """

    def __init__(self) -> None:
        self._host: dict[str, Any] = {}
        self.trouble: Optional[PodmanLack] = None
        try:
            done = _podman("info", "--format", "json")
            if done.returncode:
                self.trouble = PodmanLack(
                    f"podman does not work here: {_last(done.stderr)}", "mend what `podman info` says"
                )
            else:
                self._host = json.loads(done.stdout)["host"]
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
            text = words_of(error) if isinstance(error, OSError) else f"no right answer within {_ANSWER_S:.0f} s"
            self.trouble = PodmanLack(f"podman does not work here: {text}", "see whether `podman info` answers")

    def lacks(self, container: dict[str, Any]) -> Optional[PodmanLack]:
        """Return why podman cannot run a service's container here; None: nothing is known against it."""
        if self.trouble is not None:
            return self.trouble
        user, image = container["user"], container["image"]
        if os.geteuid() != 0:
            ids = min(sum(one["size"] for one in self._host["idMappings"][kind]) for kind in ("uidmap", "gidmap"))
            if ids <= user:
                text = f"podman may use {ids} user ids for this user, and the image's user is number {user}"
                return PodmanLack(
                    text, "ask the site for subordinate ids, 65536 of them, in /etc/subuid and /etc/subgid"
                )
            if not any((self._host.get(name) or {}).get("executable") for name in ("slirp4netns", "pasta")):
                return PodmanLack("podman has no network for containers of a user", "install slirp4netns or passt")
            if not os.access(_TUN, os.R_OK | os.W_OK):
                what = "ask the site to open it to users: mode 0666"
                return PodmanLack(f"{_TUN} cannot be opened, and containers of a user need it for their network", what)
        if image.startswith(_LOCAL) and not has_image(image):
            text = f"the image {image} is not on this machine, and {_LOCAL} is no registry"
            return PodmanLack(
                text,
                f"make it: `podman build -t {image} FOLDER`, or `podman load`; `podman images` shows what is there",
            )
        return None

    def limits(self, container: dict[str, Any]) -> list[str]:
        """Return options that hold a container to what its blueprint needs, as far as this user's cgroups can."""
        known = self._host.get("cgroupControllers") or ()
        options = {"memory": f"--memory={container['memory']}b", "cpu": f"--cpus={container['cpus']}"}
        return [option for controller, option in options.items() if controller in known]


def has_image(image: str) -> bool:
    """Return whether an image is on this machine."""
    try:
        return _podman("image", "exists", image).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _podman(*words: str, wait_s: float = _ANSWER_S) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["podman", *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=wait_s)


def _last(said: bytes) -> str:
    return said.decode(errors="replace").strip().rpartition("\n")[2]


def container_name(spec: dict[str, Any], folder: Path) -> str:
    """Return the name of a service's container."""
    name: str = spec["container"]["name"]
    return name.replace("{run}", folder.parent.parent.name)


def container_words(
    spec: dict[str, Any], place: ServiceLocation, argv: Sequence[str], options: Sequence[str], publish: bool = True
) -> list[str]:
    """Return the words that run a program of a service's image in its container; their variables are written to a file.

    Args:
        argv: the program, with names in braces.
        options: of podman, besides.
        publish: whether its ports are.
    """
    inside, variables = spec["container"], place.folder / ".env"
    write_atomically(variables, "".join(f"{name}={value}\n" for name, value in place.own.items()), durable=False)
    words = ["podman", "run", "--rm", "--replace", "--name", container_name(spec, place.folder)]
    words += ["--env-file", str(variables), f"--stop-timeout={spec['stop_s']:.0f}"]
    words += ["--security-opt", "no-new-privileges", "--cap-drop", "all", *_own_limits()]
    words += ["--read-only", "--user", str(inside["user"])]
    # Without rights, the user in the container is who runs it; root gives what is mounted to that user.
    own = ",U" if os.getuid() == 0 else ""
    if not own:
        words += ["--userns", inside["userns"]]
    for name, number in place.ports.items() if publish else ():
        words += ["--publish", f"{place.address}:{number}:{spec['ports'][name]['inside']}"]
    for about in spec["volumes"].values():
        words += ["--volume", f"{about['path']}:{about['inside']}:rw{own}"]
    for name, about in spec["secrets"].items():
        words += ["--volume", f"{about['path']}:/run/cordee/secrets/{name}:ro{own}"]
    if spec["files"]:
        words += ["--volume", f"{place.folder}:/run/cordee/files:ro{own}"]
    if inside["guard"]:
        # A copy: what is installed may be closed to the user in the container.
        guard = place.folder / ".guard.py"
        write_atomically(guard, Path(inside["guard"]).read_text(), durable=False)
        words += ["--volume", f"{guard}:{GUARD}:ro{own}"]
    for path in ("/tmp", *inside["writable"]):
        words += ["--tmpfs", path]
    if inside["gpus"]:
        words += ["--device", "nvidia.com/gpu=all"]
    return [*words, *options, inside["image"], *(filled(word, place.known) for word in argv)]


def _own_limits() -> list[str]:
    """Return options that keep a container within what this process may give: podman's own limits may be above it."""
    found = []
    for name, number, most in (
        ("nofile", resource.RLIMIT_NOFILE, _MOST_FILES),
        ("nproc", resource.RLIMIT_NPROC, _MOST_PROCESSES),
    ):
        hard = resource.getrlimit(number)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(hard, most)
        found.append(f"--ulimit={name}={limit}:{limit}")
    return found


def command_beside(
    spec: dict[str, Any], place: ServiceLocation, argv: Sequence[str], stranger: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Return words and environment by which a command of a blueprint runs beside the program: in its container, where it has one.

    Args:
        stranger: it has no credentials.
    """
    words = [filled(word, place.known) for word in argv]
    if "container" not in spec:
        return words, place.stranger if stranger else place.env
    hidden = [f"--env={name}=" for name in place.telling] if stranger else []
    return ["podman", "exec", *hidden, container_name(spec, place.folder), *words], dict(os.environ)


def remove_containers(name: str, stop_s: float) -> None:
    """End and remove the containers whose names begin so, with volumes of their own.

    Raises:
        OSError, subprocess.TimeoutExpired: podman cannot be asked, or does not end.
    """
    found = _podman("ps", "--all", "--quiet", "--filter", f"name=^{name}").stdout.decode().split()
    if found:
        _podman("rm", "--force", "--ignore", "--volumes", f"--time={stop_s:.0f}", *found, wait_s=stop_s + REMOVAL_S)
