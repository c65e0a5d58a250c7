"""From the name of an EDF to a command line: `cordee env run` is in front of every task, so little is imported on the way."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cordee.core.backends import BUILT_IN, HERE
from cordee.core.documents.config_paths import profile_folders, profile_names
from cordee.core.documents.files import read_toml
from cordee.core.errors import CordeeError
from cordee.core.findings import Finding
from cordee.systems.environments.edf import resolve, search_folders
from cordee.systems.environments.node.choose import EngineChoice, choose_engine
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import EngineLaunch
from cordee.systems.environments.node.hooks import PREFIX, is_on

SHELL = "/bin/sh"


@dataclass(frozen=True)
class SiteWords:
    """What a cluster's profile says for the start of a command: `[environment] engine, search_path, store`."""

    engine: str | None = None
    search_path: tuple[str, ...] = ()
    store: str | None = None


@dataclass(frozen=True)
class StartCommand:
    """A command line that is ready to be executed.

    Attributes:
        argv, env: what to execute, with which environment.
        choice: the engine, and those that were passed over.
        environment: with its root.
        findings: what was worth a warning in the EDF.
    """

    argv: list[str]
    env: dict[str, str]
    choice: EngineChoice
    environment: Environment
    findings: tuple[Finding, ...]


def site_words(cluster: str, environ: Mapping[str, str] = os.environ) -> SiteWords:
    """Return what a cluster's profile says, without loading all of it where it says nothing of environments.

    Raises:
        UsageError: no cluster has this name.
        DocumentError: its profile is wrong.
    """
    known = cluster in BUILT_IN or cluster in profile_names(environ)
    paths = [folder / f"{cluster}.toml" for folder in profile_folders(environ)]
    if known and not any("environment" in read_toml(path)[1] for path in paths if path.exists()):
        return SiteWords()
    from cordee.systems.environments.prepare import site_of

    site = site_of(cluster, environ)
    return SiteWords(site.engine, tuple(site.search_path), site.store)


def start(
    name: str,
    argv: Sequence[str],
    *,
    cluster: str = HERE,
    engine: str | None = None,
    workdir: str | None = None,
    lenient: bool = False,
    terminal: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> StartCommand:
    """Return the command line that runs `argv` in the environment of an EDF.

    Args:
        name: of the EDF, or its path.
        argv: the command; empty: the image's own, else a shell when there is a `terminal`.
        cluster: whose profile counts.
        engine: over the profile's.
        workdir: where the command begins, over the environment's.
        lenient: unknown keys of EDFs are kept.
        environ: the host's variables.

    Raises:
        DocumentError: the EDF is not there, or wrong.
        EngineError: no engine can run it here, or there is nothing to run.
        CordeeError: its image is not there.
    """
    site = site_words(cluster, environ)
    folders = search_folders(environ, site.search_path)
    found = resolve(
        name,
        cwd=Path.cwd(),
        variables=environ,
        search_path=folders,
        lenient=lenient,
        config_of=lambda image: located(Environment(name="", image=image), site, environ).config,
    )
    try:
        environment, warnings = _on_this_machine(located(found.environment, site, environ), environ)
    except CordeeError as error:
        raise found.unbuilt(error) from None
    choice = choose_engine(environment, engine or site.engine)
    words = tuple(argv)
    if not environment.command(words):
        words = (environ.get("SHELL", SHELL) if not environment.image else SHELL,) if terminal else ()
    env = environment.variables(environ)
    line = choice.engine.argv(environment, EngineLaunch(words, env, workdir))
    return StartCommand(line, env, choice, environment, (*found.findings, *warnings))


def _on_this_machine(environment: Environment, environ: Mapping[str, str]) -> tuple[Environment, list[Finding]]:
    """Return the environment with what its hooks bring, and what is left out of it here."""
    warnings: list[Finding] = []
    if is_on(environment.annotations, "ssh"):
        text = "ssh into a single command is not served: `cordee run` and `srun --environment` do"
        warnings.append(Finding(text, "warn", "hook-not-run", given="com.hooks.ssh.enabled"))
        kept = {name: value for name, value in environment.annotations.items() if not name.startswith(f"{PREFIX}ssh.")}
        environment = replace(environment, annotations=kept)
    if environment.annotations or environment.overlay:
        from cordee.systems.environments.node.ready import ready_here

        environment = ready_here(
            environment, environ, lambda text: warnings.append(Finding(text, "warn", "hook-not-run"))
        )
    return environment, warnings


def located(environment: Environment, site: SiteWords, environ: Mapping[str, str] = os.environ) -> Environment:
    """Return the environment with its root, which is on this machine already or an error that says how it gets there."""
    from cordee.systems.environments.images.locate import locate
    from cordee.systems.environments.images.store.image_store import own_store

    return locate(environment, own_store(environ, site.store))
