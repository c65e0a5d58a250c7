"""Environments whose container the place of a job starts itself: what the place is given, and what it cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from cordee.core.documents.toml_lines import Keys
from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.job.profile import ClusterProfile
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.edf import Resolved
from cordee.systems.environments.edf.origins import EDF
from cordee.systems.environments.images import ImageStore, read_reference
from cordee.systems.environments.images.locate import missing_path
from cordee.systems.environments.images.reference import RegistryReference, is_elsewhere
from cordee.systems.environments.node.document import ContainerRoot, Environment
from cordee.systems.environments.node.hooks import PREFIX

_ENDING = ".sif"


def place_findings(resolved: Resolved, cluster: ClusterProfile) -> Iterator[Finding]:
    """Yield what of an environment is not done where the place starts the container: nothing of it is left out in silence."""
    environment = resolved.environment
    if cluster.environment.engine:
        text, given = (
            f"{cluster.name} starts containers itself, and its profile names an engine",
            cluster.environment.engine,
        )
        yield Finding(
            text, "error", "not-honoured", given=given, next="take `engine` out of [environment] of the profile"
        )
    for keys, value, what in _unsaid(resolved):
        text = f"machines of {cluster.name} start the container themselves, and cannot have {what}"
        yield _finding(resolved, keys, text, cluster, str(value))
    for name, value in environment.env.items():
        told = resolved.origins.get(("env", name))
        own = told is not None and re.search(rf"\$\{{{re.escape(name)}\b", str(told.value))
        if own and environment.config == ImageConfig():
            text = f"the value extends the {name} of the image, which is not on this machine to be asked"
            yield _finding(
                resolved, ("env", name), text, cluster, f"{name} = {value}", "`cordee env pull` the image; or "
            )


def _unsaid(resolved: Resolved) -> Iterator[tuple[Keys, object, str]]:
    """Yield keys, what is given there, and what that is."""
    environment = resolved.environment
    for at, mount in enumerate(environment.mounts):
        yield ("mounts", at), f"{mount.source}:{mount.target}", "folders of this machine: data travels by [data]"
    for at, device in enumerate(environment.devices):
        yield ("devices", at), device, "devices by name: GPUs are there where [need] asks for them"
    for name, value in environment.annotations.items():
        if name.startswith(PREFIX) and not (name.endswith(".enabled") and value.lower() != "true"):
            yield ("annotations", name), f"{name} = {value}", "hooks"
    writable = resolved.origins[("writable",)]
    if writable.kind == EDF:
        yield (
            ("writable",),
            f"writable = {str(environment.writable).lower()}",
            "what they decide themselves: who can write to its root",
        )
    if environment.entrypoint:
        yield ("entrypoint",), "entrypoint = true", "the image's entrypoint: name the command in `run`"
    if environment.overlay:
        yield ("stack",), environment.overlay, "a layer that is kept"


def root_of_place(resolved: Resolved, store: ImageStore) -> Environment:
    """Return the environment with its image as the place is given it, and what the place does not know of it.

    Raises:
        CordeeError: it cannot be handed on.
    """
    environment = resolved.environment
    image = environment.image
    if not image:
        return replace(environment, root=ContainerRoot("host"))
    if is_elsewhere(image):
        if "://" in image and not image.endswith(_ENDING):
            raise CordeeError(
                "an image of an address is a file of Apptainer",
                given=image,
                allowed=f"an address that ends with {_ENDING}",
            )
        return _entered(environment, image)
    source = read_reference(image)
    # What needs a login, or has a recipe, is in the store here and nowhere else.
    if isinstance(source, RegistryReference) and not source.user and not resolved.additions.get("build"):
        return _entered(environment, f"docker://{source.name}")
    if not isinstance(source, RegistryReference) and source.path.endswith(_ENDING):
        missing_path(source, image)
        return _entered(environment, source.path)
    located = resolved.located(store)
    assert located.root is not None
    if located.root.kind != "squashfs":
        what = f"pack it, and name the file: mksquashfs {located.root.path} image.sqsh"
        raise CordeeError(
            "a root folder does not travel", given=image, allowed="a file, or an image of a registry", next=what
        )
    return replace(located, root=ContainerRoot("entered", located.root.path))


def _entered(environment: Environment, given: str) -> Environment:
    """Return it with an image that itself says what it has to say, once it is there."""
    return replace(environment, root=ContainerRoot("entered", given), config=ImageConfig())


def _finding(
    resolved: Resolved, keys: Keys, text: str, cluster: ClusterProfile, given: str, first: str = ""
) -> Finding:
    told = resolved.origins.get(keys)
    what = f"{first}take it out, or name another EDF there: [on.{cluster.name}] environment"
    file, line = (told.file, told.line) if told is not None and told.file else (str(resolved.files[-1]), None)
    return Finding(
        text,
        "error",
        "not-honoured",
        file=file,
        line=line,
        given=given,
        allowed="an image, `env`, `workdir` and [startup]",
        next=what,
    )
