"""The root of a container, assembled from an image, an overlay, and mounts.

The overlay is there also where nothing may be written: mount points that the image lacks are made in a layer above it,
before the two are joined, so that nothing is ever copied out of the image and its owner does not matter.
"""

from __future__ import annotations

import os
import stat

from cordee.environment.engines.namespace import kernel
from cordee.environment.engines.namespace.accounts import write_accounts
from cordee.environment.engines.namespace.devices import bind_device, mount_devices
from cordee.environment.engines.namespace.gpus import wanted_edits
from cordee.environment.engines.namespace.kernel import Refused
from cordee.environment.engines.namespace.mounts import bind, restrict
from cordee.environment.engines.namespace.overlay import join
from cordee.environment.engines.namespace.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Optional

    from cordee.environment.engines.namespace.request import Request

    class Planned(NamedTuple):
        """A mount to be made: `point` inside (None: looked up when it is made), of a folder or of a file."""

        source: str
        target: str
        flags: tuple[str, ...]
        folder: bool
        point: Optional[str]


# A folder that stands for the host where devices are looked up, as for checks.
HOST_ROOT = "CORDEE_HOST_ROOT"
# Folders that every host has; one of them is covered, in our own namespace, by the memory that the parts are put in.
_STAGES = ("/tmp", "/mnt", "/run", "/var")
_BASE = ("/proc", "/sys", "/dev", "/tmp")


class Root:
    """A root being made, in a mount namespace of our own.

    Args:
        request: what is wanted.
        user: whether this is a user namespace.

    Raises:
        Refused: a source is missing, or the image is no image.
    """

    def __init__(self, request: Request, user: bool) -> None:
        self._request = request
        self.user = user
        self.servers: list[int] = []
        # What the machine's devices need, found while the host is in sight.
        self._edits = wanted_edits(request.devices, os.environ.get(HOST_ROOT, ""))
        self.variables = self._edits.variables
        self.appended = self._edits.appended
        self._real = {source: _existing(source) for source, _, _ in request.mounts}
        self._image = os.path.realpath(request.path) if request.path else ""
        self._stage = ""
        self._covered = -1

    def prepare(self) -> None:
        """Mount what comes out of files: the image's squashfs and those of mounts. Processes that serve them start here.

        Raises:
            Refused: a file is missing or no squashfs.
        """
        self._stage = next((folder for folder in _STAGES if os.path.isdir(folder)), "")
        if not self._stage:
            raise Refused("the host has none of the folders that the engine can use", given=", ".join(_STAGES))
        self._covered = os.open(self._stage, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        kernel.mount("cordee", self._stage, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755")
        for name in ("image", "layer", "work", "root", "files"):
            os.mkdir(f"{self._stage}/{name}")
        if self._request.kind == "squashfs":
            self._mount_squashfs(self._request.path, self._image, f"{self._stage}/image")
        elif self._request.kind == "folder":
            self._mount_folder()
        for number, (source, _, flags) in enumerate(self._request.mounts):
            if "sqsh" in flags:
                os.mkdir(f"{self._stage}/files/{number}")
                self._mount_squashfs(source, self._real[source], f"{self._stage}/files/{number}")

    def _mount_squashfs(self, path: str, real: str, target: str) -> None:
        from cordee.environment.engines.namespace.squashfs import mount_squashfs

        server = mount_squashfs(self._on_host(real), target, not self.user, path)
        if server is not None:
            self.servers.append(server)

    def _mount_folder(self) -> None:
        if not os.path.isdir(self._on_host(self._image)):
            raise Refused(
                "the image is not a folder",
                given=self._request.path,
                next="give a folder that holds a root (/bin, /etc, ...)",
            )
        try:
            kernel.mount(self._on_host(self._image), f"{self._stage}/image", None, kernel.BIND)
        except OSError as error:
            raise Refused(
                f"the image's folder cannot be used: {error.strerror}",
                given=self._request.path,
                next="other file systems may be mounted inside it: copy it without them",
            ) from None

    def _on_host(self, path: str) -> str:
        """Return where a real path of the host is found while the stage covers a part of it."""
        if path == self._stage or path.startswith(self._stage + "/"):
            return f"/proc/self/fd/{self._covered}{path[len(self._stage) :]}"
        return path

    def assemble(self, own_processes: bool) -> None:
        """Join the layers, make every mount, and make it the root of this process.

        Args:
            own_processes: whether this process has a namespace of process ids of its own, and wants its own /proc.

        Raises:
            Refused: with what would not be mounted.
        """
        if self._request.kind == "host":
            self._mounts_on(Tree(""), "", self._plan(Tree("")))
            if not self._request.writable:
                restrict("/", kernel.RDONLY)
            kernel.unmount(self._stage)
            if own_processes:
                kernel.mount("proc", "/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
            return
        root = f"{self._stage}/root"
        planned = self._layer()
        join(self._stage, self.user, self._request.writable)
        self._system(root, own_processes)
        self._mounts_on(Tree(root), root, planned)
        self._switch(root)

    def _layer(self) -> list[Planned]:
        """Make, above the image, what it lacks: mount points, accounts, the user's home."""
        image, layer = f"{self._stage}/image", f"{self._stage}/layer"
        tree = Tree(layer, image)
        try:
            for path, goal in self._edits.links:
                tree.link(path, goal)
            for path in _BASE:
                point = tree.point(path, folder=True)
                assert point is not None
                tree.cover(point)
            write_accounts(tree, image)
            home = os.environ.get("HOME", "")
            if home.startswith("/") and tree.resolve(home)[1:] == (None, False):
                tree.make_folder(tree.resolve(home)[0], 0o700)
        except OSError as error:
            raise Refused(
                f"the layer above the image cannot be made: {error.strerror}", given=self._request.path
            ) from None
        return self._plan(tree)

    def _plan(self, tree: Tree) -> list[Planned]:
        planned = []
        mounts = []
        for number, (source, target, flags) in enumerate(self._request.mounts):
            mounted = f"{self._stage}/files/{number}"
            mounts.append((mounted if "sqsh" in flags else self._on_host(self._real[source]), target, flags))
        # What the EDF mounts goes over what devices bring.
        for path, target, flags in [*((self._on_host(each[0]), *each[1:]) for each in self._edits.mounts), *mounts]:
            folder = stat.S_ISDIR(os.stat(path).st_mode)
            point = tree.point(target, folder)
            if point is not None:
                tree.cover(point)
            planned.append((path, target, flags, folder, point))
        return planned  # type: ignore[return-value]

    def _system(self, root: str, own_processes: bool) -> None:
        if own_processes:
            kernel.mount("proc", f"{root}/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
        else:
            bind("/proc", f"{root}/proc")
        bind("/sys", f"{root}/sys")
        mount_devices(f"{root}/dev")
        inside = Tree(root)
        for source, target in self._edits.nodes:
            bind_device(self._on_host(source), root + inside.resolve(target)[0])
        kernel.mount("tmpfs", f"{root}/tmp", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=1777")

    def _mounts_on(self, tree: Tree, root: str, planned: list[Planned]) -> None:
        for source, target, flags, folder, point in planned:
            at = point if point is not None else tree.point(target, folder)
            bind(source, f"{root}{at}", flags)

    def _switch(self, root: str) -> None:
        try:
            kernel.pivot(root)
            kernel.unmount(".")
        except OSError:
            # The first root, an initial RAM disk, cannot be moved away.
            os.chdir(root)
            kernel.mount(root, "/", None, kernel.MOVE)
            os.chroot(".")
        os.chdir("/")


def _existing(source: str) -> str:
    if not os.path.exists(source):
        raise Refused(
            "the source of a mount does not exist on this host",
            given=source,
            next="make it, or take the mount out of the EDF",
        )
    return os.path.realpath(source)
