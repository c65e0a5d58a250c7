"""What is asked of one step of a build, as the JSON document that the engine is handed."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class StepOrder:
    """One command over layers, or one archive of a folder.

    Attributes:
        do: `run` or `pack`.
        base: the squashfs file or folder below all layers, empty: none, only mounts; of `pack`: what is packed, if it is no `layer`.
        own: whether files in the base belong to who builds, as in a store; else to root, as its maker set them.
        layers: names of folders below `folder`, the uppermost first, each with its files in `diff`.
        folder: where the layers lie.
        work: a folder below `folder` of this step alone: `upper`, `work`, `root` and `tmp` are made in it.
        mounts: (source, target, whether it can be written to).
        argv, env, workdir: the command.
        copied: (source, target, folders that no image keeps): what is copied in place of a command.
        network: whether it may reach the network.
        archive, layer, epoch, since_ns: of `pack`: where the archive goes, the layer that is packed, and times.
        sweep: of `pack`: whether what tools write for themselves is left out of the layer.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.do = str(document["do"])
        self.base = str(document.get("base", ""))
        self.own = bool(document.get("own", True))
        self.layers = [str(each) for each in document.get("layers", ())]
        self.folder = str(document.get("folder", ""))
        self.work = str(document.get("work", ""))
        self.mounts = [(str(one), str(other), bool(writable)) for one, other, writable in document.get("mounts", ())]
        self.argv = [str(each) for each in document.get("argv", ())]
        self.copied = document.get("copied")
        self.env = {str(key): str(value) for key, value in document.get("env", {}).items()}
        self.workdir = str(document.get("workdir", "/"))
        self.network = bool(document.get("network", False))
        self.archive = str(document.get("archive", ""))
        self.layer = str(document.get("layer", ""))
        self.epoch = int(document.get("epoch", 0))
        self.since_ns = int(document.get("since_ns", 0))
        self.sweep = bool(document.get("sweep", True))


def read_order(path: str) -> StepOrder:
    """Return the order in a file.

    Raises:
        OSError, ValueError, KeyError: it is none.
    """
    with open(path, encoding="utf-8") as file:
        return StepOrder(json.load(file))
