"""Hooks of the fabric: libfabric with the provider of the network, NCCL's plugin over it, DCGM, and the library cache.

Libraries of the fabric are the host's, or those of a folder that a site has made for containers (`com.hooks.netstack`): all that
they need lies in it, so that they do not depend on what is installed on the node.
"""

from __future__ import annotations

import glob
import os
from dataclasses import replace
from typing import Mapping, Optional, Sequence

from cordee.systems.environments.node.document import ContainerMount, Environment
from cordee.systems.environments.node.engines._base import MissingCapability
from cordee.systems.environments.node.hooks._base import Hook
from cordee.systems.environments.node.hooks.host_program import with_mounts

INSIDE = "/run/cordee/fabric"
_MACHINE = os.uname().machine
_SYSTEM = (f"/usr/lib/{_MACHINE}-linux-gnu", "/usr/lib64", "/usr/lib")
_CRAY = "/opt/cray/libfabric/*/lib64"
_PLUGINS = ("/opt/amazon/ofi-nccl/lib*", "/opt/amazon/aws-ofi-nccl/lib*", "/opt/aws-ofi-nccl/lib*", "/usr/local/lib")
_OF_VARIANTS = ("/opt/cscs/aws-ofi-ccl-plugin/{}", "/opt/aws-ofi-nccl/{}/lib*", "/opt/aws-ofi-rccl/{}/lib*")
# Where sites keep folders of libraries, each at MACHINE/VERSION/NAME: that of CSCS, unless the variable names another.
_NETSTACKS, _NETSTACKS_VARIABLE = "/capstor/store/cscs/cscs/public/containers/netstack", "CORDEE_NETSTACKS"
# Programs of the image have these from their own loader, and end where they get others.
_OF_THE_LOADER = ("ld-linux", "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "libresolv.so")


def _netstack(settings: Mapping[str, str], host: Mapping[str, str]) -> Optional[str]:
    """Return the folder that the annotations of netstack name; empty: they name none; None: the host's libraries are meant."""
    source = settings.get("netstack.source", "host")
    if source == "host":
        return None
    version = settings.get("netstack.version", "")
    name = settings.get("netstack.name", "").replace(":", "_").replace(",", "-")
    if source != "artifact" or not version or not name or "/" in version + name or ".." in (version, name):
        return ""
    at = host.get(_NETSTACKS_VARIABLE, "") or host.get("CORDEE_HOST_ROOT", "") + _NETSTACKS
    return f"{at}/{_MACHINE}/{version}/{name}"


def _no_netstack(settings: Mapping[str, str], folder: str, what: str) -> MissingCapability:
    """Return what is to be said of annotations of netstack that bring nothing."""
    if folder:
        text, given = f"the network stack that the annotations name has no {what}", folder
    elif settings["netstack.source"] != "artifact":
        text, given = "com.hooks.netstack.source is neither artifact nor host", settings["netstack.source"]
    else:
        text = "com.hooks.netstack names no version and name, and which the site would take is not known here"
        given = f"{settings.get('netstack.version', '')} {settings.get('netstack.name', '')}".strip()
    advice = f'name another, or source = "host"; {_NETSTACKS_VARIABLE} is the folder that has them'
    return MissingCapability("netstack", text, advice, given)


def _stack_libraries(folder: str, wanted: Sequence[str]) -> dict[str, str]:
    """Return all libraries of a folder of netstack, if one of those that are wanted is among them."""
    found = _libraries([folder], ("lib",), "") if folder else {}
    there = any(name.startswith(tuple(wanted)) for name in found)
    return {name: path for name, path in found.items() if not name.startswith(_OF_THE_LOADER)} if there else {}


def _libraries(folders: Sequence[str], names: Sequence[str], root: str) -> dict[str, str]:
    """Return files of the host by their names: of the last folder in the order of its versions that has any."""
    for pattern in folders:
        for folder in sorted(glob.glob(root + pattern), reverse=True):
            found = {
                os.path.basename(path): os.path.realpath(path)
                for name in names
                for path in glob.glob(f"{folder}/{name}*")
                if os.path.isfile(path)
            }
            if found:
                return found
    return {}


def _with_libraries(environment: Environment, libraries: Mapping[str, str]) -> Environment:
    mounts = [ContainerMount(path, f"{INSIDE}/{name}", ("ro",)) for name, path in libraries.items()]
    environment = with_mounts(environment, mounts)
    patch = ("prepend", "LD_LIBRARY_PATH", INSIDE)
    return environment if patch in environment.patches else replace(environment, patches=(*environment.patches, patch))


class CxiHook(Hook):
    """Slingshot: the host's libfabric and libcxi, which have to be those of its driver. /dev/cxi* is there unasked."""

    name = "cxi"
    required = False

    def missing(self, settings: Mapping[str, str], host: Mapping[str, str]) -> list[MissingCapability]:
        root = host.get("CORDEE_HOST_ROOT", "")
        found = []
        if not glob.glob(f"{root}/dev/cxi*"):
            text = "this machine has no Slingshot interface (/dev/cxi*): communication goes over what else there is"
            found.append(MissingCapability("cxi", text, "run it on a node with Slingshot"))
        elif not self._found(settings, host):
            folder = _netstack(settings, host)
            if folder is not None:
                return [_no_netstack(settings, folder, "libfabric")]
            text = "libfabric and libcxi are not installed on this machine"
            found.append(MissingCapability("libfabric", text, f"install them in {_CRAY} or {_SYSTEM[0]}"))
        return found

    def _found(self, settings: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
        root, folder = host.get("CORDEE_HOST_ROOT", ""), _netstack(settings, host)
        if folder is not None:
            return _stack_libraries(folder, ("libfabric.so",))
        fabric = _libraries((_CRAY, *_SYSTEM), ("libfabric.so",), root)
        driver = _libraries(_SYSTEM, ("libcxi.so",), root)
        return {**fabric, **driver} if fabric and driver else {}

    def apply(self, environment: Environment, settings: Mapping[str, str], host: Mapping[str, str]) -> Environment:
        environment = _with_libraries(environment, self._found(settings, host))
        return replace(environment, env={"FI_PROVIDER": "cxi", **environment.env})


class OfiNcclHook(Hook):
    """NCCL's plugin for libfabric; `variant` says for which CUDA or ROCm, as a site names its folders (cuda12, rocm6)."""

    name = "aws_ofi_nccl"
    required = False

    def missing(self, settings: Mapping[str, str], host: Mapping[str, str]) -> list[MissingCapability]:
        folder = _netstack(settings, host)
        if self._found(settings, host):
            return []
        if folder is not None:
            return [_no_netstack(settings, folder, "plugin for NCCL or RCCL")]
        what = f" of the variant {settings['variant']}" if settings.get("variant") else ""
        text = (
            f"NCCL's plugin for libfabric{what} is not installed on this machine: NCCL takes what it has, TCP at worst"
        )
        return [
            MissingCapability("aws-ofi-nccl", text, "name its folder by CORDEE_AWS_OFI_NCCL", settings.get("variant"))
        ]

    def _found(self, settings: Mapping[str, str], host: Mapping[str, str]) -> dict[str, str]:
        folder = _netstack(settings, host)
        if folder is not None:
            return _stack_libraries(folder, ("libnccl-net", "librccl-net"))
        variant, own = settings.get("variant", ""), host.get("CORDEE_AWS_OFI_NCCL", "")
        folders = [each.format(variant) for each in _OF_VARIANTS] if variant else list(_PLUGINS)
        return _libraries([own] if own else folders, ("libnccl-net", "librccl-net"), host.get("CORDEE_HOST_ROOT", ""))

    def apply(self, environment: Environment, settings: Mapping[str, str], host: Mapping[str, str]) -> Environment:
        found = self._found(settings, host)
        environment = _with_libraries(environment, found)
        plugins = sorted(name for name in found if name.startswith(("libnccl-net", "librccl-net")))
        name = "libnccl-net.so" if "libnccl-net.so" in plugins else plugins[0]
        return replace(environment, env={"NCCL_NET_PLUGIN": f"{INSIDE}/{name}", **environment.env})


class DcgmHook(Hook):
    """The host's libraries of DCGM, for recorders that are run inside; its daemon is the host's."""

    name = "dcgm"
    required = False

    def missing(self, settings: Mapping[str, str], host: Mapping[str, str]) -> list[MissingCapability]:
        if self._found(host):
            return []
        text = "DCGM is not installed on this machine: what reads its counters inside has none"
        return [MissingCapability("dcgm", text, "`cordee record` and runs read NVML in its place")]

    def _found(self, host: Mapping[str, str]) -> dict[str, str]:
        return _libraries(_SYSTEM, ("libdcgm",), host.get("CORDEE_HOST_ROOT", ""))

    def apply(self, environment: Environment, settings: Mapping[str, str], host: Mapping[str, str]) -> Environment:
        return _with_libraries(environment, self._found(host))


class LibraryCacheHook(Hook):
    """The loader's cache made anew, for images whose programs ignore LD_LIBRARY_PATH."""

    name = "ldcache"
    required = False

    def missing(self, settings: Mapping[str, str], host: Mapping[str, str]) -> list[MissingCapability]:
        return []

    def apply(self, environment: Environment, settings: Mapping[str, str], host: Mapping[str, str]) -> Environment:
        refresh = "ldconfig 2>/dev/null || /sbin/ldconfig || echo 'cordee: the library cache cannot be made anew' >&2"
        return replace(environment, startup=(refresh, *environment.startup))
