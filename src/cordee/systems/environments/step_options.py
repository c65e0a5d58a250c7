"""Sites whose engine is an option of srun: the step is started inside the container, and needs no engine of its own."""

from __future__ import annotations

import re
import shlex

from cordee.systems.environments.node.document import SQUASHFS_FLAG, Environment
from cordee.systems.environments.node.engines._base import EngineError

PLACES = ("file", "image", "mounts", "workdir", "writable", "entrypoint")
_PLACE = re.compile(r"\{([^{}]*)\}")


def step_options(template: str, environment: Environment, file: str = "") -> list[str]:
    """Return the options of srun that start a step in an environment.

    Words of the template for which the environment says nothing are left out. Variables are not said by options, which
    everybody can read: agents set them, inside.

    Args:
        template: options with the places `{file}` (the EDF), `{image}`, `{mounts}` (`SOURCE:TARGET[:FLAGS]` with commas),
            `{workdir}`, `{writable}` (`container-writable` or `container-readonly`) and
            `{entrypoint}` (`container-entrypoint` or `no-container-entrypoint`).
        environment: resolved; its root is the site's affair.
        file: the path of the EDF.

    Raises:
        EngineError: a place that there is not, or something in the environment that these options do not say.
    """
    words = shlex.split(template)
    places = {name for word in words for name in _PLACE.findall(word)}
    if not places <= set(PLACES):
        unknown = ", ".join(sorted(places - set(PLACES)))
        raise EngineError("the option of srun has places that are not known", given=unknown, allowed=list(PLACES))
    if "file" not in places:
        _refuse_unsaid(environment, places, template)
    values = {
        "file": file,
        "image": environment.image,
        "mounts": _mounts(environment) if "mounts" in places else None,
        "workdir": environment.workdir,
        "writable": "container-writable" if environment.writable else "container-readonly",
        "entrypoint": "container-entrypoint" if environment.entrypoint else "no-container-entrypoint",
    }
    filled = [_filled(word, values) for word in words]
    return [word for word in filled if word is not None]


def _filled(word: str, values: dict[str, str | None]) -> str | None:
    if not all(values[name] for name in _PLACE.findall(word)):
        return None
    return _PLACE.sub(lambda found: values[found.group(1)] or "", word)


def _refuse_unsaid(environment: Environment, places: set[str], template: str) -> None:
    """Raise for what the environment asks for and the options have no place for: dropped is never silent."""
    asked = {
        "image": bool(environment.image),
        "mounts": bool(environment.mounts),
        "workdir": environment.workdir is not None,
        "writable": not environment.writable,
        "entrypoint": environment.entrypoint,
        "devices": bool(environment.devices),
        "annotations": bool(environment.annotations),
        "variables that are to be unset": "" in environment.env.values(),
    }
    unsaid = [name for name, wanted in asked.items() if wanted and name not in places]
    if unsaid:
        raise EngineError(
            f"the site's option of srun cannot say what this environment has: {', '.join(unsaid)}",
            given=template,
            next="take it out of the EDF, or give the profile's step_option a place for it",
        )


def _mounts(environment: Environment) -> str:
    for mount in environment.mounts:
        if SQUASHFS_FLAG in mount.flags or "," in mount.source + mount.target:
            raise EngineError(
                "the site's option of srun cannot say this mount",
                given=":".join([mount.source, mount.target, "+".join(mount.flags)]),
                next="take it out of the EDF, or name another engine in the profile",
            )
    parts = [
        [mount.source, mount.target, *(["+".join(mount.flags)] if mount.flags else [])] for mount in environment.mounts
    ]
    return ",".join(":".join(part) for part in parts)
