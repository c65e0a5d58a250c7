"""The layer above an image: what podman and its runtime would otherwise have to make inside, where a user often may not."""

from __future__ import annotations

import os
import stat

from cordee.systems.environments.node.engines.namespace.root.accounts import write_accounts
from cordee.systems.environments.node.engines.namespace.root.tree import RootTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cordee.systems.environments.node.engines.namespace.request import ContainerRequest

# Where podman and its runtime mount things of their own: (path, whether it is a folder).
_FOLDERS = ("/proc", "/sys", "/dev", "/tmp")
_FILES = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/run/.containerenv")


class PodmanLayer(RootTree):
    """Folders of an image that are made again above it belong to this process: podman's user namespace knows no other."""

    def make_folder(self, path: str, mode: int = 0o755) -> None:
        """Make a folder in the first layer, with those above it; modes are those of the image.

        Raises:
            OSError: the layer cannot be written.
        """
        here = self._layers[0] + path
        if path in ("", "/") or os.path.isdir(here):
            return
        self.make_folder(path.rpartition("/")[0])
        found = self.look(path)
        os.mkdir(here)
        os.chmod(here, mode if found is None else stat.S_IMODE(found.st_mode))


def make_layer(tree: RootTree, image: str, request: ContainerRequest, files: str, owner: tuple[int, int]) -> None:
    """Make mount points and accounts above an image.

    Args:
        tree: the layer, and the image below it.
        image: its folder.
        request: whose mounts get their points.
        files: the folder in which the squashfs file of mount N is mounted on N.
        owner: number and group of whose container it is.

    Raises:
        Refused: a mount point cannot be made.
        OSError: the layer cannot be written.
    """
    for path in _FOLDERS:
        tree.point(path, folder=True)
        tree.make_folder(tree.resolve(path)[0])
    for path in _FILES:
        tree.make_folder(tree.resolve(path)[0].rpartition("/")[0])
        tree.point(path, folder=False)
    write_accounts(tree, *owner, request.accounts)
    home = os.environ.get("HOME", "")
    if home.startswith("/") and tree.resolve(home)[1:] == (None, False):
        tree.make_folder(tree.resolve(home)[0], 0o700)
    for path in _FOLDERS:
        tree.cover(tree.resolve(path)[0])
    for number, (source, target, flags) in enumerate(request.mounts):
        here = f"{files}/{number}" if "sqsh" in flags else source
        point = tree.point(target, stat.S_ISDIR(os.stat(here).st_mode))
        if point is not None:
            tree.make_folder(point.rpartition("/")[0])
            tree.cover(point)
