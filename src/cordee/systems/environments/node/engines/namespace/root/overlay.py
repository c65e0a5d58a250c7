"""An image and the layer above it, joined."""

from __future__ import annotations

from cordee.systems.environments.node.engines.namespace import kernel
from cordee.systems.environments.node.engines.namespace.kernel import EngineRefused


def join(stage: str, user: bool, writable: bool) -> None:
    """Mount, at `root` below the stage, its `image` with its `layer` over it; what is written goes to the layer.

    Args:
        stage: a folder in memory with `image`, `layer`, `work` and `root`.
        user: whether this is a user namespace.
        writable: otherwise nothing can be written, by nobody.

    Raises:
        Refused: the kernel would not.
    """
    if writable:
        options = f"lowerdir={stage}/image,upperdir={stage}/layer,workdir={stage}/work"
    else:
        options = f"lowerdir={stage}/layer:{stage}/image"
    reason = ""
    for choice in [f"{options},userxattr", options] if user else [options]:
        try:
            kernel.mount("overlay", f"{stage}/root", "overlay", kernel.NOSUID | kernel.NODEV, choice)
            return
        except OSError as error:
            reason = error.strerror or str(error)
    raise EngineRefused(
        f"the kernel would not lay a writable layer over the image (overlay): {reason}",
        next="Linux 5.11 lets users do this; take another engine: --engine podman",
    )
