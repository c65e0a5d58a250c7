"""GPUs by the labels that dcgm-exporter gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cordee.systems.score.exchange.imported import FoundDevice, ImportedSamples

_NODE_LABELS = ("Hostname", "hostname", "node", "kubernetes_node", "exported_instance", "instance")
_UUID_LABELS = ("UUID", "uuid")
_PROFILE = re.compile(r"(\d+)g\.")
_SLICES = {"A30": 4}  # a MIG profile counts slices: of 7 on all others
_OWNERS = ("exported_pod", "pod", "hpc_job")
PREFIX = "DCGM_"


class NoDevice(ValueError):
    """The labels name no GPU."""


def device_of(found: ImportedSamples, labels: Mapping[str, str]) -> FoundDevice:
    """Return the device that a series belongs to, with what its labels say of it.

    Raises:
        NoDevice: neither a UUID nor a node and an index are among them.
    """
    node = next((labels[name] for name in _NODE_LABELS if labels.get(name)), "")
    node = re.sub(r":\d+$", "", node)
    uuid = next((labels[name] for name in _UUID_LABELS if labels.get(name)), "")
    index = labels.get("gpu", "")
    if not uuid and not (node and index.isdigit()):
        raise NoDevice("neither UUID nor node and gpu are among the labels")
    parent = uuid or f"{node}/gpu{index}"
    instance = labels.get("GPU_I_ID", "")
    device = found.device(node or "unknown-node", f"{parent}/gi{instance}" if instance else parent)
    about = device.about
    about["index"] = int(index) if index.isdigit() else about.get("index", 0)
    if labels.get("modelName"):
        about["model"] = labels["modelName"]
    if instance:
        about["parent"] = parent
        profile = labels.get("GPU_I_PROFILE", "")
        about["profile"] = profile
        slices = _PROFILE.match(profile)
        whole = next((of for model, of in _SLICES.items() if model in labels.get("modelName", "")), 7)
        if slices:
            about["share"] = int(slices[1]) / whole
    owner = next((labels[name] for name in _OWNERS if labels.get(name)), "")
    if owner and owner not in about.setdefault("owners", []):
        about["owners"].append(owner)
    return device


def finish(found: ImportedSamples) -> None:
    """Leave out GPUs that are cut into instances, and say of GPUs with several owners that they are shared."""
    cut = {(node, device.about["parent"]) for (node, _), device in found.devices.items() if "parent" in device.about}
    for place in sorted(cut & set(found.devices)):
        del found.devices[place]
        found.remark(f"{place[1]} is cut into instances (MIG): what was measured of it as a whole was left out")
    for device in found.devices.values():
        owners = device.about.pop("owners", [])
        if len(owners) > 1:
            device.about["shared"] = f"used by {len(owners)} pods or jobs in this time"
    if any(node == "unknown-node" for node, _ in found.devices):
        found.remark("some series name no host: their node is unknown")
