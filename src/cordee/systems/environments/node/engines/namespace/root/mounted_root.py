"""The root of a container, assembled from an image, an overlay, and mounts.

The overlay is there also where nothing may be written: mount points that the image lacks are made in a layer above it,
before the two are joined, so that nothing is ever copied out of the image and its owner does not matter.
"""

from __future__ import annotations

import os
import stat

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.gpus.drivers import wanted_edits
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused
from cordee.systems.environments.node.engines.namespace.root.accounts import write_accounts
from cordee.systems.environments.node.engines.namespace.root.devices import bind_device, mount_devices
from cordee.systems.environments.node.engines.namespace.root.mounts import bind, mount_points, restrict
from cordee.systems.environments.node.engines.namespace.root.overlay import join
from cordee.systems.environments.node.engines.namespace.root.tree import RootTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from cordee.systems.environments.node.engines.namespace.gpus.edits import Edits
    from cordee.systems.environments.node.engines.namespace.hook_runner import HookRunner
    from cordee.systems.environments.node.engines.namespace.request import ContainerRequest
    from cordee.systems.environments.node.engines.namespace.root.kept_layer import KeptLayer

# A folder that stands for the host where devices are looked up, as for checks.
HOST_ROOT = "CORDEE_HOST_ROOT"
# Folders that every host has; one of them is covered, in our own namespace, by the memory that the parts are put in.
_STAGES = ("/tmp", "/mnt", "/run", "/var")
_BASE = ("/proc", "/sys", "/dev", "/tmp")
# The stages of hooks before the root is this process' own, and behind that.
BEFORE, INSIDE = ("prestart", "createRuntime", "createContainer"), ("startContainer",)


class _Planned:
    """A mount to be made: at `point` inside; None: looked up when those before it are there."""

    __slots__ = ("flags", "folder", "inner", "point", "source", "target")

    def __init__(self, source: str, target: str, flags: tuple[str, ...], inner: list[str]) -> None:
        self.source = source
        self.target = target
        self.flags = flags
        self.inner = inner
        self.folder = stat.S_ISDIR(os.stat(source).st_mode)
        self.point: Optional[str] = None


class MountedRoot:
    """A root being made, in a mount namespace of our own.

    Args:
        request: what is wanted.
        user: whether this is a user namespace.

    Raises:
        Refused: a source is missing, or the image is no image.
    """

    def __init__(self, request: ContainerRequest, user: bool) -> None:
        self.request = request
        self.user = user
        self.servers: list[int] = []
        # What the machine's devices need, found while the host is in sight.
        self._edits = wanted_edits(request.devices, os.environ.get(HOST_ROOT, ""))
        self.variables = self._edits.variables
        self.appended = self._edits.appended
        self._hooks = _hooks_of(request, self._edits)
        if self._hooks is not None:
            self._hooks.stand_by()
        self._real = {source: _existing(source) for source, _, _ in request.mounts}
        self._image = os.path.realpath(request.path) if request.path else ""
        self._points = mount_points() if request.mounts else []
        self._covers = self._stage = ""
        self._covered = -1
        if request.kind == "squashfs" or any("sqsh" in flags for _, _, flags in request.mounts):
            # While the file that this program comes from is in sight: the stage may cover its folder.
            import cordee.systems.environments.node.engines.namespace.root.squashfs
        if request.startup:
            import cordee.systems.environments.node.engines.namespace.startup  # noqa: F401
        self._kept = _kept_layer(request)

    def prepare(self) -> None:
        """Mount what comes out of files: the image's squashfs and those of mounts. Processes that serve them start here.

        Raises:
            Refused: a file is missing or no squashfs.
        """
        if self.request.kind == "host":
            self._mount_on_host()
            return
        self._covers = next((folder for folder in _STAGES if os.path.isdir(folder)), "")
        if not self._covers:
            raise EngineRefused("the host has none of the folders that the engine can use", given=", ".join(_STAGES))
        self._covered = os.open(self._covers, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        # A mount of the covered folder, or of one above it, is to have what is below the cover: an unbindable one is left out.
        kernel.mount("cordee", self._covers, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755")
        kernel.mount(None, self._covers, None, kernel.UNBINDABLE)
        self._stage = f"{self._covers}/stage"
        os.mkdir(self._stage)
        kernel.mount("cordee", self._stage, "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=0755")
        for name in ("image", "layer", "work", "root", "files"):
            os.mkdir(f"{self._stage}/{name}")
        if self.request.kind == "squashfs":
            self._mount_squashfs(self.request.path, self._image, f"{self._stage}/image", self.request.writable)
        elif self.request.kind == "folder":
            self._mount_folder()
        for number, (source, _, flags) in enumerate(self.request.mounts):
            if "sqsh" in flags:
                os.mkdir(f"{self._stage}/files/{number}")
                self._mount_squashfs(source, self._real[source], f"{self._stage}/files/{number}")

    def _mount_on_host(self) -> None:
        """Make the mounts where they are to be: without an image there is no layer, so every target has to be there."""
        tree = RootTree("")
        for source, target, flags in self.request.mounts:
            folder = "sqsh" in flags or os.path.isdir(source)
            path, found, _ = tree.resolve(target)
            if found is None:
                raise EngineRefused(
                    "the target of a mount does not exist, and without an image it cannot be made inside only",
                    given=target,
                    next=f"make it ({'mkdir -p' if folder else 'touch'} {target}), or give the EDF an image",
                )
            tree.point(path, folder)
            if "sqsh" in flags:
                self._mount_squashfs(source, self._real[source], path)
            else:
                bind(self._real[source], path, flags, self._inner(self._real[source]))

    def _mount_squashfs(self, path: str, real: str, target: str, own: bool = False) -> None:
        from cordee.systems.environments.node.engines.namespace.root.squashfs import mount_squashfs

        server = mount_squashfs(self._on_host(real), target, not self.user, path, own)
        if server is not None:
            self.servers.append(server)

    def _mount_folder(self) -> None:
        if not os.path.isdir(self._on_host(self._image)):
            raise EngineRefused(
                "the image is not a folder",
                given=self.request.path,
                next="give a folder that holds a root (/bin, /etc, ...)",
            )
        try:
            kernel.mount(self._on_host(self._image), f"{self._stage}/image", None, kernel.BIND)
        except OSError as error:
            raise EngineRefused(
                f"the image's folder cannot be used: {error.strerror}",
                given=self.request.path,
                next="other file systems may be mounted inside it: copy it without them",
            ) from None

    def _on_host(self, path: str) -> str:
        """Return where a real path of the host is found while the cover hides a part of it."""
        if self._covers and (path == self._covers or path.startswith(self._covers + "/")):
            return f"/proc/self/fd/{self._covered}{path[len(self._covers) :]}"
        return path

    def assemble(self, own_processes: bool) -> None:
        """Join the layers, make every mount, and make it the root of this process.

        Args:
            own_processes: whether this process has a namespace of process ids of its own, and wants its own /proc.

        Raises:
            Refused: with what would not be mounted.
        """
        if self.request.kind == "host":
            if own_processes:
                kernel.mount("proc", "/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
            if not self.request.writable:
                restrict("/", kernel.RDONLY)
            return
        root = f"{self._stage}/root"
        planned = self._layer()
        join(self._stage, self.user, self.request.writable, self._kept)
        if self._kept is not None and self._kept.server:
            self.servers.append(self._kept.server)
        self._system(root, own_processes)
        late = RootTree(root)
        for each in planned:
            at = each.point or late.point(each.target, each.folder) or each.target
            bind(each.source, root + at, each.flags, each.inner)
        # As the host counts: this process may be in a namespace of its own, and /proc is still the host's.
        pid = int(os.readlink("/proc/self")) if self._hooks else 0
        if self._hooks is not None:
            self._hooks.bundle = f"{self._stage}/bundle"
            os.mkdir(self._hooks.bundle)
            self._hooks.describe(root, self.request.argv, self.request.workdir or "/", self.request.mounts)
            self._hooks.run(BEFORE, pid, self._on_host)
        self._switch(root)
        if self._hooks is not None:
            self._hooks.run(INSIDE, pid)
            self._hooks.started(pid)

    def _layer(self) -> list[_Planned]:
        """Make, above the image, what it lacks: mount points, accounts, the user's home."""
        tree = RootTree(f"{self._stage}/layer", f"{self._stage}/image")
        try:
            for path, goal in self._edits.links:
                tree.link(path, goal)
            for path in _BASE:
                tree.insist(path)
                tree.cover(path)
            write_accounts(tree, others=self.request.accounts)
            home = os.environ.get("HOME", "")
            if home.startswith("/") and tree.resolve(home)[1:] == (None, False):
                tree.make_folder(tree.resolve(home)[0], 0o700)
        except OSError as error:
            raise EngineRefused(
                f"the layer above the image cannot be made: {error.strerror}", given=self.request.path
            ) from None
        return self._plan(tree)

    def _plan(self, tree: RootTree) -> list[_Planned]:
        planned = []
        # What the EDF mounts goes over what devices bring.
        for source, target, flags in self._edits.mounts:
            planned.append(_Planned(self._on_host(source), target, flags, []))
        for number, (source, target, flags) in enumerate(self.request.mounts):
            if "sqsh" in flags:
                planned.append(_Planned(f"{self._stage}/files/{number}", target, flags, []))
            else:
                real = self._real[source]
                planned.append(_Planned(self._on_host(real), target, flags, self._inner(real)))
        for each in planned:
            each.point = tree.point(each.target, each.folder)
            if each.point is not None:
                tree.cover(each.point)
        return planned

    def _inner(self, real: str) -> list[str]:
        """Return where, below a folder of the host, something is mounted, from that folder on."""
        above = "" if real == "/" else real
        return [path[len(above) :] for path in self._points if path.startswith(above + "/") and path != real]

    def _system(self, root: str, own_processes: bool) -> None:
        if own_processes:
            kernel.mount("proc", f"{root}/proc", "proc", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC)
        else:
            bind("/proc", f"{root}/proc")
        bind("/sys", f"{root}/sys")
        mount_devices(f"{root}/dev")
        inside = RootTree(root)
        for source, target in self._edits.nodes:
            bind_device(self._on_host(source), root + inside.resolve(target)[0])
        kernel.mount("tmpfs", f"{root}/tmp", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=1777")

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


def _hooks_of(request: ContainerRequest, edits: Edits) -> Optional[HookRunner]:
    if request.kind == "host" or not (request.hooks or edits.hooks):
        return None
    import json

    from cordee.systems.environments.node.engines.namespace.hook_runner import HookRunner

    annotations = dict(each.partition("=")[::2] for each in request.annotations)
    return HookRunner([*map(json.loads, request.hooks), *edits.hooks], annotations)


def _kept_layer(request: ContainerRequest) -> Optional[KeptLayer]:
    if not request.overlay:
        return None
    from cordee.systems.environments.node.engines.namespace.root.kept_layer import KeptLayer

    if request.kind == "host":
        raise EngineRefused(
            "an overlay lies over an image, and this environment names none",
            given=request.overlay,
            next="give the EDF an image, or take `[stack] overlay` out",
        )
    return KeptLayer(request.overlay, request.writable)


def _existing(source: str) -> str:
    if not os.path.exists(source):
        raise EngineRefused(
            "the source of a mount does not exist on this host",
            given=source,
            next="make it, or take the mount out of the EDF",
        )
    return os.path.realpath(source)
