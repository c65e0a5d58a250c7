"""Which software a node runs: kernel, drivers, libraries, settings; read from files, nothing is loaded."""

from __future__ import annotations

import fnmatch
import glob
import os
import platform
import re
from typing import Optional

from cordee.machine import sysfs
from cordee.machine.machine import cpu_field

_NVIDIA_VERSION = re.compile(r"Kernel Module\D*?\s([\d.]+)")
_SELECTED = re.compile(r"\[(\w+)\]")
# Packages of a Python that bring their own CUDA, NCCL or ROCm, by the folders that pip leaves.
_PACKAGES = ("torch", "jaxlib", "tensorflow", "nvidia_nccl*", "nvidia_cuda_runtime*", "rccl*", "numpy")
_LIBRARIES = {"nccl": "libnccl.so.*", "rccl": "librccl.so.*", "libfabric": "libfabric.so.*"}
_PLUGINS = ("libnccl-net*.so*", "librccl-net*.so*")
_LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/lib",
    "usr/local/cuda/lib64",
    "opt/rocm/lib",
    "opt/cray/libfabric/*/lib64",
    "opt/amazon/efa/lib*",
)


def read_system(root: str) -> dict[str, str]:
    """Return kernel, system, C library, drivers, microcode and settings of a node; what is not there is left out."""
    found: dict[str, Optional[str]] = {
        "kernel": sysfs.text(os.path.join(root, "proc/sys/kernel/osrelease")),
        "system": _system(root),
        "glibc": platform.libc_ver()[1] if root == "/" else None,
        "nvidia_driver": _nvidia(root),
        "amd_driver": sysfs.text(os.path.join(root, "sys/module/amdgpu/version")),
        "cuda": _cuda(root),
        "rocm": sysfs.text(os.path.join(root, "opt/rocm/.info/version")),
        "microcode": cpu_field(root, "microcode"),
        "huge_pages": _selected(sysfs.text(os.path.join(root, "sys/kernel/mm/transparent_hugepage/enabled"))),
        "governor": _governor(root),
    }
    return {name: value for name, value in found.items() if value}


def read_libraries(root: str, search_path: str) -> dict[str, str]:
    """Return the versions, by file name, of the communication libraries that a program would find.

    Args:
        root: where the host's /usr and /opt are seen.
        search_path: LD_LIBRARY_PATH of the ranks; what is found there hides the system's.
    """
    folders = [folder for folder in search_path.split(os.pathsep) if folder]
    folders += [place for folder in _LIBRARY_FOLDERS for place in sorted(glob.glob(os.path.join(root, folder)))]
    listed = [(folder, sysfs.names(folder)) for folder in folders]
    found = {name: _library(listed, pattern) for name, pattern in _LIBRARIES.items()}
    found["net_plugin"] = _plugins(listed)
    return {name: value for name, value in found.items() if value}


def read_packages(folders: list[str]) -> dict[str, str]:
    """Return the versions of the packages that matter in a Python's folders, by the folders that pip leaves."""
    found: dict[str, str] = {}
    for folder in folders:
        for entry in sysfs.names(folder):
            if not entry.endswith(".dist-info"):
                continue
            name, _, version = entry[: -len(".dist-info")].partition("-")
            if name not in found and any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in _PACKAGES):
                found[name] = version
    return found


def _system(root: str) -> Optional[str]:
    content = sysfs.text(os.path.join(root, "etc/os-release")) or ""
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', content, re.MULTILINE)
    return match.group(1) if match else None


def _nvidia(root: str) -> Optional[str]:
    content = sysfs.text(os.path.join(root, "proc/driver/nvidia/version")) or ""
    match = _NVIDIA_VERSION.search(content)
    return match.group(1) if match else sysfs.text(os.path.join(root, "sys/module/nvidia/version"))


def _cuda(root: str) -> Optional[str]:
    content = sysfs.text(os.path.join(root, "usr/local/cuda/version.json")) or ""
    match = re.search(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([^"]+)"', content)
    return match.group(1) if match else None


def _selected(content: Optional[str]) -> Optional[str]:
    match = _SELECTED.search(content or "")
    return match.group(1) if match else None


def _governor(root: str) -> Optional[str]:
    """Return the governors in use, such as `performance` or `performance schedutil` where the processors differ."""
    paths = glob.glob(os.path.join(root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"))
    return " ".join(sorted({sysfs.text(path) or "" for path in paths})).strip() or None


def _library(listed: list[tuple[str, list[str]]], pattern: str) -> Optional[str]:
    """Return the longest version among the names in the first folder that has any: `2.21.5` of libnccl.so.2.21.5."""
    for folder, entries in listed:
        names = [name for name in entries if fnmatch.fnmatchcase(name, pattern)]
        if names:
            best = max(
                names + [os.path.basename(os.path.realpath(os.path.join(folder, name))) for name in names], key=len
            )
            return best.partition(".so.")[2] or best
    return None


def _plugins(listed: list[tuple[str, list[str]]]) -> Optional[str]:
    names = {
        name for _, entries in listed for name in entries for pattern in _PLUGINS if fnmatch.fnmatchcase(name, pattern)
    }
    return " ".join(sorted(names)) or None
