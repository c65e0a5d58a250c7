"""OCI hooks of a machine: which of those in its folders an environment gets (containers/common, oci-hooks(5), version 1.0.0).

A file says a program, the stages at which it is run, and when: always, by annotations, by the command, or where there are mounts.
All conditions that it gives have to hold.
"""

from __future__ import annotations

import os
import re
from typing import Any, Iterator, Mapping

from cordee.machine.foreign_files import read_json
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import EngineError

FOLDERS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
VARIABLE = "CORDEE_HOOKS_DIR"
STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")


def hook_files(host: Mapping[str, str]) -> dict[str, str]:
    """Return the files of a machine by their names: of two with one name that of the later folder counts.

    Args:
        host: the machine's variables; `CORDEE_HOOKS_DIR`, a list with colons, stands for the usual folders.
    """
    given = host.get(VARIABLE)
    folders = FOLDERS if given is None else [each for each in given.split(":") if each]
    found: dict[str, str] = {}
    for folder in folders:
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".json")]
        except OSError:
            continue
        found.update((name, f"{folder}/{name}") for name in names)
    return dict(sorted(found.items()))


def oci_hooks(environment: Environment, host: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the hooks that the machine's files give an environment: `stage`, `path`, `args`, `env`, `timeout`, by file names.

    Raises:
        EngineError: a file cannot be read, or is none of a hook.
    """
    found = []
    for path in hook_files(host).values():
        try:
            said = read_json(path)
            hook, when, stages = hook_of(said["hook"]), said.get("when") or {}, said["stages"]
            if not _holds(when, environment):
                continue
            for stage in stages:
                if stage not in STAGES:
                    raise EngineError("a hook has a stage that is none", given=f"{path}: {stage}", allowed=list(STAGES))
                found.append({"stage": stage, **hook})
        except (OSError, ValueError, KeyError, TypeError, AttributeError, re.error) as error:
            raise EngineError(
                f"the file of a hook cannot be used: {type(error).__name__}: {error}",
                given=path,
                next=f"ask the site; {VARIABLE}= in front of the command leaves all of them out",
            ) from None
    return found


def hook_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return a hook as OCI and CDI files have it: `args` with the program's own name first, as OCI wants it."""
    path = str(said["path"])
    args = [str(each) for each in said.get("args") or [os.path.basename(path)]]
    return {
        "path": path,
        "args": args,
        "env": [str(each) for each in said.get("env") or ()],
        "timeout": int(said.get("timeout") or 0),
    }


def asked_annotations(host: Mapping[str, str]) -> Iterator[str]:
    """Yield the patterns of annotations for which the machine has hooks of its own."""
    for path in hook_files(host).values():
        try:
            yield from (read_json(path).get("when") or {}).get("annotations") or {}
        except (OSError, ValueError, AttributeError):
            continue  # who runs hooks says so


def _holds(when: Mapping[str, Any], environment: Environment) -> bool:
    conditions = []
    if "always" in when:
        conditions.append(bool(when["always"]))
    for key, value in (when.get("annotations") or {}).items():
        conditions.append(
            any(re.search(key, name) and re.search(value, text) for name, text in environment.annotations.items())
        )
    if when.get("commands"):
        command = (environment.config.command or environment.config.entrypoint or ("",))[0]
        conditions.append(any(re.search(each, command) for each in when["commands"]))
    if "hasBindMounts" in when:
        conditions.append(bool(environment.mounts) == when["hasBindMounts"])
    return bool(conditions) and all(conditions)
