"""Whether a machine can run an environment: capabilities, paths and the image, each that is missing by its name."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from cordee.core import registry
from cordee.core.documents.faults import dotted
from cordee.core.documents.toml_lines import Keys
from cordee.core.errors import UsageError
from cordee.core.findings import Finding
from cordee.core.ports.images import STALE
from cordee.core.words import did_you_mean
from cordee.machine.images.errors import ImageError, StoreError
from cordee.systems.environments.edf import Resolved
from cordee.systems.environments.edf.image import open_archive
from cordee.systems.environments.given_recipe import given_recipe
from cordee.systems.environments.hooks import hooks_asked_for, nearest_known
from cordee.systems.environments.images.enroot import image_warnings
from cordee.systems.environments.images.squash import read_superblock
from cordee.systems.environments.images.store.image_store import ImageStore
from cordee.systems.environments.inside import has_folder
from cordee.systems.environments.node.choose import PREFERENCE
from cordee.systems.environments.node.document import SQUASHFS_FLAG, ContainerRoot, Environment
from cordee.systems.environments.node.engines import ENGINES, find_engine
from cordee.systems.environments.node.engines._base import MissingCapability
from cordee.systems.environments.node.hooks import HOOKS, PREFIX, lacking
from cordee.systems.environments.ready.doctor import gpus_of

SCHEMA = "cordee.environment-check/1"
# The engine of sites that enter an environment by an option of srun: what it needs is on their nodes.
STEP = "step"
# What `uname` calls a machine, as OCI calls it.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "riscv64": "riscv64", "s390x": "s390x"}
_FOR_ENGINES = ("com.pyxis.", "com.sarus.")
_OCI_ENGINES = ("podman", STEP)
# Variables of libraries that do nothing without a GPU.
_FOR_GPUS = ("NCCL_", "RCCL_", "TORCH_NCCL_", "XLA_PYTHON_CLIENT_MEM_")


@dataclass(frozen=True)
class Checked:
    """What was found out about an environment on this machine.

    Attributes:
        engine: that would run it; None: none can.
        findings: an error is something without which it does not run.
    """

    engine: str | None
    findings: list[Finding]

    @property
    def runnable(self) -> bool:
        """Whether it can run here."""
        return self.engine is not None and not any(finding.severity == "error" for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        findings = [finding.document() for finding in self.findings]
        return {"schema": SCHEMA, "valid": True, "runnable": self.runnable, "engine": self.engine, "findings": findings}


def check(resolved: Resolved, store: ImageStore, engine: str | None = None) -> Checked:
    """Return what this machine lacks to run an environment; changes nothing.

    Args:
        resolved: the EDF.
        store: of images.
        engine: the only one that counts; None: the first that can.

    Raises:
        UsageError: there is no engine of that name.
    """
    if engine and engine not in (*ENGINES, STEP):
        allowed = list(dict.fromkeys([*ENGINES, STEP]))
        hint = did_you_mean(engine, allowed, "name one of these")
        raise UsageError(f"there is no engine {engine}", given=engine, allowed=allowed, next=hint)
    environment, findings = _image(resolved, store)
    findings += _stale(resolved, environment) if not findings else []
    findings += [*resolved.findings, *_mounts(resolved), *_devices(resolved)]
    findings += [*_workdir(resolved, environment), *_entrypoint(resolved, environment)]
    chosen, lacking = _engine(resolved, environment, engine)
    findings += [each for each in lacking if not _said(each, findings)]
    return Checked(chosen, [*findings, *_gpus(resolved), *hook_findings(resolved, chosen)])


def _image(resolved: Resolved, store: ImageStore) -> tuple[Environment, list[Finding]]:
    """Return the environment with its root where it can be had, and what is wrong with its image."""
    environment = resolved.environment
    try:
        archive = open_archive(environment.image)
        if archive is not None and store.find(archive.digest) is None:
            store.require()
            text = "the image is an archive, which is imported when it is first used"
            hint = f"cordee env pull {environment.image}"
            environment = replace(environment, config=archive.config)
            return environment, [_finding(resolved, ("image",), text, "image-not-imported", "info", next=hint)]
        environment = resolved.located(store)
    except (ImageError, StoreError) as error:
        details: dict[str, Any] = {"given": error.given, "allowed": error.allowed, "next": error.next}
        return environment, [_finding(resolved, ("image",), error.text, "missing-image", **details)]
    needed, here = environment.config.architecture, _ARCHITECTURES.get(platform.machine(), platform.machine())
    if needed and needed != here:
        text = f"the image is for {needed}, and this machine is {here}"
        hint = f"take the image for {here}, or check it on a machine of that kind"
        return environment, [
            _finding(resolved, ("image",), text, "wrong-architecture", given=needed, allowed=here, next=hint)
        ]
    origin = resolved.origins["image",]
    return environment, [replace(each, file=origin.file, line=origin.line) for each in image_warnings(environment)]


def _stale(resolved: Resolved, environment: Environment) -> list[Finding]:
    """Say where the image is older than the recipe that stands beside its name, or its lock."""
    recipe, ask = given_recipe(resolved), registry.offered(STALE)
    return ask(recipe, environment.config.digest or "") if recipe is not None and ask is not None else []


def _mounts(resolved: Resolved) -> Iterator[Finding]:
    targets: dict[str, str] = {}
    for index, mount in enumerate(resolved.environment.mounts):
        keys: Keys = ("mounts", index)
        if mount.target in targets:
            text = f"the mount of {mount.source} hides that of {targets[mount.target]} at {mount.target}"
            yield _finding(
                resolved, keys, text, "hidden-mount", "warn", given=mount.target, next="take one of them out"
            )
        targets[mount.target] = mount.source
        if not os.path.exists(mount.source):
            near = _nearest_parent(mount.source)
            hint = f"make it, or correct the path; {near} is there"
            text = f"the source of a mount is not there: {mount.source}"
            yield _finding(resolved, keys, text, "missing-source", given=mount.source, next=hint)
        elif SQUASHFS_FLAG in mount.flags:
            try:
                read_superblock(Path(mount.source))
            except ImageError as error:
                text, allowed = error.text.replace("the image", "the mount"), "a squashfs file"
                details = {"given": mount.source, "allowed": allowed, "next": error.next}
                yield _finding(resolved, keys, text, "bad-squashfs", "error", **details)


def _devices(resolved: Resolved) -> Iterator[Finding]:
    for index, device in enumerate(resolved.environment.devices):
        path = device.partition(":")[0]
        if path.startswith("/") and not os.path.exists(path):
            text = f"there is no device {path}"
            hint = "leave it out, or check it on a machine that has it"
            yield _finding(resolved, ("devices", index), text, "missing-device", given=path, next=hint)


def _gpus(resolved: Resolved) -> Iterator[Finding]:
    name = next((name for name in resolved.environment.env if name.startswith(_FOR_GPUS)), "")
    if name and not gpus_of():
        text, hint = "this machine has no GPU, and the environment is for some", "run it on a node that has"
        yield _finding(resolved, ("env", name), text, "no-gpu", "warn", given=name, next=hint)


def _entrypoint(resolved: Resolved, environment: Environment) -> Iterator[Finding]:
    if environment.entrypoint and environment.root is not None and not environment.config.entrypoint:
        text = "the image names no entrypoint: commands are run as they are"
        yield _finding(resolved, ("entrypoint",), text, "no-entrypoint", "warn", next="take the entrypoint out")


def hook_findings(resolved: Resolved, engine: str | None) -> Iterator[Finding]:
    """Say which annotations look like those of a hook and are not, and which hooks nobody will run: engines that hand
    annotations to an OCI runtime leave them to the site's hooks."""
    annotations = resolved.environment.annotations
    for name in annotations:
        near = nearest_known(name)
        if near:
            text, hint = f"no hook at CSCS has the annotation {name}", f"did you mean {near}?"
            yield _finding(resolved, ("annotations", name), text, "unknown-hook", "warn", given=name, next=hint)
    for name in annotations if engine not in _OCI_ENGINES else ():
        if name.startswith(_FOR_ENGINES):
            text, hint = (
                f"the annotation {name} is for another engine, and nothing reads it here",
                "take it out, or say it otherwise",
            )
            yield _finding(resolved, ("annotations", name), text, "annotation-not-read", "warn", given=name, next=hint)
    for name in hooks_asked_for(annotations):
        hook = name.removeprefix(PREFIX).removesuffix(".enabled")
        if hook in HOOKS or engine in _OCI_ENGINES:
            continue
        text = f"the hook {hook} is asked for, and no hook of that name is run by the engine {engine or 'here'}"
        hint = "give what it would bring by mounts and env, or take an engine whose site has the hook"
        yield _finding(resolved, ("annotations", name), text, "hook-not-run", "warn", given=name, next=hint)
    for found, missing in lacking(resolved.environment, os.environ) if engine != STEP else ():
        text = f"the hook {found.name} lacks something here: {missing.text}"
        severity = "error" if found.required else "warn"
        details = {"given": missing.given or missing.capability, "next": missing.next}
        keys: Keys = ("annotations", f"{PREFIX}{found.name}.enabled")
        yield _finding(resolved, keys, text, "hook-lacks", severity, **details)


def _workdir(resolved: Resolved, environment: Environment) -> Iterator[Finding]:
    workdir = environment.workdir or environment.config.workdir
    there = has_folder(workdir, environment) if workdir and environment.root else True
    if there is None:
        text = f"whether the workdir is in the image could not be looked at: {workdir}"
        yield _finding(
            resolved, ("workdir",), text, "workdir-unknown", "warn", given=workdir, next="install unsquashfs"
        )
    elif not there:
        text = f"the workdir is not there inside: {workdir}"
        hint = "make it in the image, mount it, or name another"
        yield _finding(resolved, ("workdir",), text, "missing-workdir", given=workdir, next=hint)


def _engine(resolved: Resolved, environment: Environment, name: str | None) -> tuple[str | None, list[Finding]]:
    """Return the engine that can run it, None with what each one lacks: an error of the one that would be taken first."""
    if environment.root is None:
        # What engines need of the machine does not depend on where the image will lie.
        environment = replace(environment, root=ContainerRoot("squashfs", environment.image))
    if name == STEP:
        text = "the site enters the environment by an option of srun; what that needs is not looked at here"
        return name, [Finding(text, "info", "engine-of-the-site", given=name)]
    names = [name] if name else [each for each in PREFERENCE if each in ENGINES]
    lacking: list[Finding] = []
    for each in names:
        missing = find_engine(each).missing(environment)
        if not missing:
            return each, []
        severity = "error" if each == names[0] else "info"
        lacking += [_lacks(resolved, each, one, severity) for one in missing]
    if not names:
        lacking.append(Finding("there is no engine", "error", "no-engine"))
    return None, lacking


def _lacks(resolved: Resolved, engine: str, missing: MissingCapability, severity: str) -> Finding:
    devices = resolved.environment.devices
    keys: Keys = ("devices", devices.index(missing.given)) if missing.given in devices else ()
    origin = resolved.origins.get(keys)
    file, line = (origin.file, origin.line) if origin else (None, None)
    details = {"given": missing.given or missing.capability, "next": missing.next}
    return Finding(f"{engine}: {missing.text}", severity, missing.capability, file=file, line=line, **details)


def _said(lacking: Finding, findings: list[Finding]) -> bool:
    """Return whether a path that an engine misses was named before, with its line."""
    return any(
        each.severity == "error"
        and isinstance(each.given, str)
        and each.given.startswith("/")
        and each.given in lacking.text
        for each in findings
    )


def _nearest_parent(path: str) -> str:
    return next((str(parent) for parent in PurePosixPath(path).parents if os.path.exists(parent)), "/")


def _finding(resolved: Resolved, keys: Keys, text: str, rule: str, severity: str = "error", **details: Any) -> Finding:
    """Return a finding about a value, with the file and line that gave it."""
    origin = resolved.origins.get(keys)
    file, line = (origin.file, origin.line) if origin else (None, None)
    allowed = details.pop("allowed", None)
    allowed = list(allowed) if isinstance(allowed, tuple) else allowed
    said = text if text.startswith(("the ", "there ", "this ", "no ", "whether ")) else f"{dotted(keys)}: {text}"
    return Finding(said, severity, rule, file=file, line=line, allowed=allowed, **details)
