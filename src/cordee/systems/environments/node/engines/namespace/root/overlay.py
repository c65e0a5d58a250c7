"""An image and the layer above it, joined."""

from __future__ import annotations

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from cordee.systems.environments.node.engines.namespace.root.kept_layer import KeptLayer


def join(stage: str, user: bool, writable: bool, kept: Optional[KeptLayer] = None) -> None:
    """Mount, at `root` below the stage, its `image` with its `layer` over it; what is written goes to the layer.

    Args:
        stage: a folder in memory with `image`, `layer`, `work` and `root`.
        user: whether this is a user namespace.
        writable: otherwise nothing can be written, by nobody.
        kept: what is above all of it and takes what is written, in place of the layer.

    Raises:
        Refused: the kernel would not.
    """
    lower = f"{stage}/layer:{stage}/image"
    if kept is not None:
        kept.show(stage)
    if kept is not None and not writable:
        options = f"lowerdir={kept.own('upper')}:{lower}"
    elif kept is not None:
        options = f"lowerdir={lower},upperdir={kept.own('upper')},workdir={kept.own('work')}"
    elif writable:
        options = f"lowerdir={stage}/image,upperdir={stage}/layer,workdir={stage}/work"
    else:
        options = f"lowerdir={lower}"
    reason = ""
    for choice in [f"{options},userxattr", options] if user else [options]:
        try:
            kernel.mount("overlay", f"{stage}/root", "overlay", kernel.NOSUID | kernel.NODEV, choice)
        except OSError as error:
            reason = error.strerror or str(error)
            continue
        if kept is not None:
            kept.check("overlayfs of a user" if choice != options else "overlayfs")
        return
    if kept is not None:
        kept.by_fuse(f"{stage}/root", lower)
        kept.check("fuse-overlayfs")
        return
    raise EngineRefused(
        f"the kernel would not lay a writable layer over the image (overlay): {reason}",
        next="Linux 5.11 lets users do this; take another engine: --engine podman",
    )
