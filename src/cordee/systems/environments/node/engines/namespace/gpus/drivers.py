"""The machine's GPUs inside: device files, and NVIDIA's driver libraries, which have to be those of the kernel's driver.

Images bring CUDA and ROCm, never the driver. The libraries are bound to /usr/local/nvidia, where NVIDIA's own images look
for them, and that folder is appended to LD_LIBRARY_PATH. AMD's driver has no libraries of its own: /dev/kfd and /dev/dri do.
"""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace.gpus.edits import Edits, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

LIBRARIES, PROGRAMS = "/usr/local/nvidia/lib64", "/usr/local/nvidia/bin"
NVIDIA_GPU = "nvidia.com/gpu"
_MACHINE = os.uname().machine
_FOLDERS = (
    f"/usr/lib/{_MACHINE}-linux-gnu/nvidia/current",
    f"/usr/lib/{_MACHINE}-linux-gnu",
    "/usr/lib64/nvidia",
    "/usr/lib64",
    "/usr/lib/nvidia",
    "/usr/lib",
)
_LIBRARY_NAMES = (
    "libcuda.so",
    "libcudadebugger.so",
    "libnvidia-",
    "libnvcuvid.so",
    "libnvoptix.so",
    "libEGL_nvidia.so",
    "libGLX_nvidia.so",
    "libGLESv1_CM_nvidia.so",
    "libGLESv2_nvidia.so",
)
_PROGRAM_NAMES = ("nvidia-smi", "nvidia-debugdump", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
_PROGRAM_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/opt/bin")
# Beside these there is a folder, /dev/nvidia-caps, for parts of GPUs.
_CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps", "nvidia-caps-imex-channels")
_AMD = ("kfd", "dri")


def wanted_edits(devices: list[str], host: str = "") -> Edits:
    """Return what the devices of an EDF add, and the machine's GPUs, which are there unasked.

    Args:
        devices: CDI names (`vendor.com/class=name`) or paths below /dev.
        host: a folder that stands for the host's root; empty: the host.

    Raises:
        Unknown: the machine does not have one, or its CDI file asks for what this engine does not do.
    """
    edits = Edits()
    chosen: Optional[set[str]] = None
    by_cdi = []
    for device in devices:
        if device.startswith("/"):
            _add_path(edits, device, host)
            continue
        kind, equals, name = device.partition("=")
        if not equals or "/" not in kind:
            raise Unknown("device", "a device is a CDI name (vendor.com/class=name) or a path", device)
        by_cdi.append((kind, name))
    if by_cdi:
        from cordee.systems.environments.node.engines.namespace.gpus.cdi import Specs

        specs = Specs(host)
        for kind, name in by_cdi:
            if specs.has(kind):
                specs.add(edits, kind, name)
                # The file names the driver's parts as well: ours would be there twice.
                chosen = chosen or set()
            elif kind == NVIDIA_GPU:
                chosen = _choose(chosen, name, host)
            else:
                specs.refuse(kind, name)
        if any(kind == NVIDIA_GPU and specs.has(kind) for kind, _ in by_cdi):
            return edits
    _add_nvidia(edits, chosen or None, host)
    edits.nodes += [(f"{host}/dev/{name}", f"/dev/{name}") for name in _AMD if os.path.exists(f"{host}/dev/{name}")]
    return edits


def _add_path(edits: Edits, path: str, host: str) -> None:
    if not os.path.exists(host + path):
        raise Unknown("device", f"this machine has no {path}", path)
    edits.nodes.append((host + path, path))


def _choose(chosen: Optional[set[str]], name: str, host: str) -> set[str]:
    """Return the numbers of the GPUs chosen so far and those of a name, `all` or a number."""
    there = _numbers(host)
    if not there:
        raise Unknown("gpu", "this machine has no NVIDIA GPU", f"{NVIDIA_GPU}={name}")
    if name != "all" and name not in there:
        raise Unknown(
            "gpu",
            f"this machine has no GPU {name}, nor a CDI file that names it",
            f"{NVIDIA_GPU}={name}",
            f"it has {', '.join(there)}; for other names: nvidia-ctk cdi generate --format=json",
        )
    return (chosen or set()) | (set(there) if name == "all" else {name})


def _numbers(host: str) -> list[str]:
    try:
        names = os.listdir(f"{host}/dev")
    except OSError:
        return []
    return sorted((name[6:] for name in names if name.startswith("nvidia") and name[6:].isdigit()), key=int)


def _add_nvidia(edits: Edits, chosen: Optional[set[str]], host: str) -> None:
    numbers = _numbers(host)
    if not numbers:
        return
    names = [*_CONTROL, *(f"nvidia{number}" for number in numbers if chosen is None or number in chosen)]
    edits.nodes += [(f"{host}/dev/{name}", f"/dev/{name}") for name in names if os.path.exists(f"{host}/dev/{name}")]
    libraries = driver_libraries(host)
    edits.mounts += [(path, f"{LIBRARIES}/{name}", ("ro",)) for name, path in sorted(libraries.items())]
    programs = {name: path for name in _PROGRAM_NAMES for path in [_program(name, host)] if path}
    edits.mounts += [(path, f"{PROGRAMS}/{name}", ("ro",)) for name, path in programs.items()]
    if libraries:
        edits.appended.append(("LD_LIBRARY_PATH", LIBRARIES))
    if programs:
        edits.appended.append(("PATH", PROGRAMS))


def driver_libraries(host: str = "") -> dict[str, str]:
    """Return the driver's libraries of the host: paths by the names under which programs ask for them."""
    found: dict[str, str] = {}
    for folder in _FOLDERS:
        try:
            names = os.listdir(host + folder)
        except OSError:
            continue
        for name in names:
            if name.startswith(_LIBRARY_NAMES) and ".so" in name and name not in found:
                path = os.path.realpath(f"{host}{folder}/{name}")
                if os.path.isfile(path):
                    found[name] = path
    return found


def _program(name: str, host: str) -> Optional[str]:
    for folder in _PROGRAM_FOLDERS:
        if os.path.exists(f"{host}{folder}/{name}"):
            return os.path.realpath(f"{host}{folder}/{name}")
    return None
