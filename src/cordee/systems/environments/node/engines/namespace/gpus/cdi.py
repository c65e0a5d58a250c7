"""Container Device Interface: files in which a vendor says what its devices need inside (CNCF CDI specification, 0.3 to 1.0).

Of the hooks that such files name, those that make links and refresh the library cache are done here, by other means; all others
are run at their stages.
"""

from __future__ import annotations

import os

from cordee.systems.environments.node.engines.namespace.gpus.edits import Edits, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDERS = ("/etc/cdi", "/var/run/cdi")
# What these would do is of no use here: the cache is replaced by a variable, the modes are the host's.
_NEEDLESS = ("chmod", "disable-device-node-modification", "enable-cuda-compat")
_FLAGS = ("ro", "rw", "nosuid", "nodev", "noexec", "private", "rprivate", "slave", "rslave")


class Specs:
    """The CDI files of a host; the later folder goes before the earlier.

    Args:
        host: a folder that stands for the host's root; empty: the host.
    """

    def __init__(self, host: str = "") -> None:
        self._host = host
        self._by_kind: dict[str, list[dict[str, Any]]] = {}
        for folder in reversed(FOLDERS):
            for name in _names(host + folder):
                spec = _read(f"{host}{folder}/{name}")
                self._by_kind.setdefault(str(spec.get("kind")), []).append(spec)

    def has(self, kind: str) -> bool:
        """Return whether a file describes devices of that kind."""
        return kind in self._by_kind

    def add(self, edits: Edits, kind: str, name: str) -> None:
        """Add what a device of that name needs.

        Raises:
            Unknown: there is none, or it asks for a hook that this engine does not do.
        """
        for spec in self._by_kind[kind]:
            for device in spec.get("devices") or []:
                if str(device.get("name")) == name:
                    self._apply(edits, spec.get("containerEdits") or {})
                    self._apply(edits, device.get("containerEdits") or {})
                    return
        self.refuse(kind, name)

    def refuse(self, kind: str, name: str) -> None:
        """Say which devices there are.

        Raises:
            Unknown: always.
        """
        known = [
            f"{each}={device.get('name')}"
            for each, specs in self._by_kind.items()
            for spec in specs
            for device in spec["devices"]
        ]
        raise Unknown(
            "device",
            "no CDI file of this machine describes the device",
            f"{kind}={name}",
            f"there are: {', '.join(sorted(known))}" if known else f"there is none in {' or '.join(FOLDERS)}",
        )

    def _apply(self, edits: Edits, found: dict[str, Any]) -> None:
        for node in found.get("deviceNodes") or []:
            source = self._host + (node.get("hostPath") or node["path"])
            if not os.path.exists(source):
                raise Unknown("device", "a device that a CDI file names is not there", source)
            edits.nodes.append((source, node["path"]))
        for mount in found.get("mounts") or []:
            flags = tuple(flag for flag in mount.get("options") or () if flag in _FLAGS)
            edits.mounts.append((os.path.realpath(self._host + mount["hostPath"]), mount["containerPath"], flags))
        for variable in found.get("env") or []:
            name, _, value = variable.partition("=")
            edits.variables.append((name, value))
        for hook in found.get("hooks") or []:
            _apply_hook(edits, hook, hook.get("args") or [])


def _apply_hook(edits: Edits, hook: dict[str, Any], args: list[str]) -> None:
    """Do what a hook of NVIDIA's container toolkit would; others are to be run."""
    pairs = list(zip(args, args[1:]))
    if "create-symlinks" in args:
        for word, value in pairs:
            if word == "--link":
                goal, _, path = value.partition("::")
                edits.links.append((path, goal))
    elif "update-ldcache" in args:
        edits.appended += [("LD_LIBRARY_PATH", value) for word, value in pairs if word == "--folder"]
    elif not any(word in args for word in _NEEDLESS):
        path = str(hook.get("path") or "")
        if not path:
            raise Unknown("cdi-hook", "a hook of a CDI file names no program", " ".join(map(str, args)))
        edits.hooks.append(
            {
                "stage": str(hook.get("hookName") or "createContainer"),
                "path": path,
                "args": [str(each) for each in args] or [path],
                "env": [str(each) for each in hook.get("env") or ()],
                "timeout": int(hook.get("timeout") or 0),
            }
        )


def _names(folder: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith((".json", ".yaml", ".yml")))
    except OSError:
        return []


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            content = file.read()
    except OSError as error:
        raise Unknown("cdi", f"a CDI file cannot be read: {error.strerror}", path) from None
    try:
        spec = _json(content) if path.endswith(".json") else _yaml(content, path)
    except ValueError as error:
        raise Unknown("cdi", f"a CDI file is damaged: {error}", path) from None
    if not isinstance(spec, dict) or not isinstance(spec.get("devices"), list):
        raise Unknown("cdi", "a CDI file has no devices", path)
    return spec


def _json(content: str) -> Any:
    from cordee.machine.foreign_files import parse_json

    return parse_json(content)


def _yaml(content: str, path: str) -> Any:
    import importlib
    import site

    # The engine starts without the folders of installed packages: this is the one place that needs them.
    site.main()
    try:
        yaml = importlib.import_module("yaml")
    except ImportError:
        raise Unknown(
            "cdi",
            "a CDI file is YAML, and PyYAML is not installed",
            path,
            "write it as JSON: nvidia-ctk cdi generate --format=json --output=/etc/cdi/nvidia.json",
        ) from None
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(str(error)) from None
