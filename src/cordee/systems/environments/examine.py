"""The environment of a job: its EDF resolved, its image found, an engine chosen, and what is wrong with any of it."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cordee.core.backends import abilities
from cordee.core.errors import CordeeError, DocumentError
from cordee.core.findings import Finding
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan import model
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.plan import STEP_ENGINE
from cordee.systems.environments.edf import Resolved
from cordee.systems.environments.edf.expand import ExpansionError, expand
from cordee.systems.environments.images import ImageStore, own_store
from cordee.systems.environments.images.enroot import image_warnings
from cordee.systems.environments.machine_check import hook_findings
from cordee.systems.environments.node.choose import PREFERENCE, choose_engine
from cordee.systems.environments.node.document import ContainerMount, Environment
from cordee.systems.environments.node.engines import entered
from cordee.systems.environments.node.engines._base import EngineError
from cordee.systems.environments.of_the_place import place_findings, root_of_place
from cordee.systems.environments.prepare import resolve_here
from cordee.systems.environments.step_options import step_options

_KEY = "environment"


class EnvironmentExamination(Examination):
    """What the ranks run in."""

    field = "environment"
    last = True

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        """Return the environment, None where it cannot be had, with mounts of what systems show."""
        part, findings = plan_environment(self.loaded, self.run_folder, shown=shown)
        return Contribution(part, findings, env=self._unsaid())

    def _unsaid(self) -> dict[str, str]:
        """Return the EDF's variables where the site enters it by options that cannot say them: the job's own go before."""
        site = self.loaded.cluster.environment
        if site.engine != STEP_ENGINE or "{file}" in site.step_option:
            return {}
        resolved, _ = _resolved(self.loaded, os.environ)
        given = resolved.environment.env if resolved else {}
        return {name: value for name, value in given.items() if value and name not in self.loaded.job.env}


def plan_environment(
    loaded: LoadedJob,
    run_folder: Path,
    environ: Mapping[str, str] = os.environ,
    shown: Sequence[ShownPaths] = (),
) -> tuple[model.EnvironmentPlan | None, list[Finding]]:
    """Return the environment that the ranks of a job run in and what is worth saying about it.

    It is None where it cannot be had: then one of the findings is an error.

    Args:
        loaded: a valid document that names an environment, with the profile of the cluster it is meant for.
        run_folder: of the run that the plan is for.
        environ: variables that the EDF may refer to.
        shown: what ranks must see of the host: it is mounted at its own paths, read-only, where the engine is ours.
    """
    saying, site = JobFindings(loaded), loaded.cluster.environment
    resolved, findings = _resolved(loaded, environ)
    if resolved is None:
        return None, findings
    if site.engine == STEP_ENGINE:
        planned = _of_the_step(loaded, resolved, run_folder, saying)
        _unmounted(resolved.environment, shown, saying)
        return planned, [*resolved.findings, *saying.findings]
    if "environment.image" in abilities(loaded.cluster.scheduler).honours:
        return _of_the_place(loaded, resolved, own_store(environ, site.store))
    _mounts(loaded, resolved.environment, saying)
    try:
        environment = resolved.located(own_store(environ, site.store))
        engine = _engine(loaded, environment, saying)
    except CordeeError as error:
        rule = "no-engine" if isinstance(error, EngineError) else error.kind
        return None, [*resolved.findings, *saying.findings, _finding(loaded, error, rule)]
    files = tuple(map(str, resolved.files))
    if not abilities(loaded.cluster.scheduler).several_machines:
        findings = list(hook_findings(resolved, engine))
        if any(finding.severity == "error" for finding in findings):
            return None, [*resolved.findings, *saying.findings, *findings]
        saying.findings.extend(findings)
    warnings = [_placed(loaded, each) for each in image_warnings(environment)]
    environment = with_shown(environment, shown, loaded.folder)
    planned = model.EnvironmentPlan(engine=engine, document=environment.document(), files=files)
    return planned, [*resolved.findings, *saying.findings, *warnings]


def _resolved(loaded: LoadedJob, environ: Mapping[str, str]) -> tuple[Resolved | None, list[Finding]]:
    """Return the job's environment, or None and why there is none."""
    assert loaded.job.environment
    saying, site = JobFindings(loaded), loaded.cluster.environment
    try:
        name = expand(os.path.expanduser(loaded.job.environment), environ)
    except ExpansionError as error:
        details: dict[str, Any] = {"given": error.given, "allowed": error.allowed, "next": error.next}
        saying.error(_KEY, error.rule, f"environment {error.text}", **details)
        return None, saying.findings
    if not name:
        saying.error(
            _KEY, "no-such-edf", "environment comes to nothing", given=loaded.job.environment, next="name an EDF"
        )
        return None, saying.findings
    try:
        resolved = resolve_here(name, site, cwd=loaded.folder, environ=environ)
    except DocumentError as error:
        return None, [_placed(loaded, finding) for finding in error.findings] or [_finding(loaded, error, error.kind)]
    except CordeeError as error:
        return None, [_finding(loaded, error, error.kind)]
    return resolved, []


def _of_the_step(loaded: LoadedJob, resolved: Resolved, run_folder: Path, saying: JobFindings) -> model.EnvironmentPlan:
    """Return the plan for a site that starts agents in the environment itself, by an option of srun."""
    environment, option = resolved.environment, loaded.cluster.environment.step_option
    words: list[str] = []
    for table, keys in (("[startup]", environment.startup), ("[stack]", environment.overlay or resolved.views)):
        if keys:
            text = f"{table} is done by engines of Cordée, and this site enters the environment by an option of srun"
            instead = "give `setup` lines and `mounts` in its place"
            saying.error(_KEY, "not-honoured", text, given=table, next=instead)
    try:
        words = step_options(option, environment, str(resolved.files[-1]))
    except (EngineError, ValueError) as error:  # ValueError: quotes that do not end
        given, allowed, what = (getattr(error, name, None) for name in ("given", "allowed", "next"))
        saying.error(
            _KEY,
            "no-engine",
            getattr(error, "text", f"{error} in step_option"),
            given=given,
            allowed=allowed,
            next=what,
        )
    if "environment.step_option" not in abilities(loaded.cluster.scheduler).honours:
        text = "the engine step is an option of srun, and there is no Slurm here"
        what = "name another engine in the profile"
        saying.error(_KEY, "not-honoured", text, given=STEP_ENGINE, allowed=list(PREFERENCE), next=what)
    shown = [mount.target for mount in environment.mounts if mount.source == mount.target]
    if environment.image and not any(run_folder.is_relative_to(path) for path in shown):
        text = "agents are started in the image, and the run's folder is not among its mounts"
        what = f'add "{run_folder.parent}" to `mounts`, unless the site mounts it'
        saying.warn(_KEY, "no-run-folder", text, given=str(run_folder), next=what)
    return model.EnvironmentPlan(
        engine=STEP_ENGINE,
        document=environment.document(),
        files=tuple(map(str, resolved.files)),
        option=shlex.join(words),
    )


def _of_the_place(
    loaded: LoadedJob, resolved: Resolved, store: ImageStore
) -> tuple[model.EnvironmentPlan | None, list[Finding]]:
    """Return the plan for a place whose jobs begin in the image."""
    findings = [*resolved.findings, *place_findings(resolved, loaded.cluster)]
    try:
        environment = root_of_place(resolved, store)
    except CordeeError as error:
        told = resolved.origins[("image",)]
        error.file, error.line = error.file or told.file, error.line or told.line
        return None, [*findings, _finding(loaded, error, "no-image")]
    if any(finding.severity == "error" for finding in findings):
        return None, [_placed(loaded, finding) for finding in findings]
    files = tuple(map(str, resolved.files))
    return model.EnvironmentPlan(engine=entered.NAME, document=environment.document(), files=files), findings


def visible(environment: Environment, place: str) -> bool:
    """Return whether a path of the host is seen inside under the same path, or something was put there on purpose."""
    covering = [mount for mount in environment.mounts if _is_below(place, mount.target)]
    nearest = max(covering, key=lambda mount: len(mount.target), default=None)
    if nearest is None:
        return False
    return nearest.target == place or nearest.source == nearest.target


def with_shown(environment: Environment, shown: Sequence[ShownPaths], job_folder: Path) -> Environment:
    """Return the environment with read-only mounts of what ranks must see and it does not show yet.

    What lies in the job's folder is seen with it.
    """
    if environment.root is None or environment.root.kind == "host":
        return environment
    for one in shown:
        for place in one.places:
            if place != "/" and not visible(environment, place) and not _is_below(place, str(job_folder)):
                environment = replace(environment, mounts=(*environment.mounts, ContainerMount(place, place, ("ro",))))
    return environment


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _unmounted(environment: Environment, shown: Sequence[ShownPaths], saying: JobFindings) -> None:
    """Name the mounts that are needed where the site enters the environment by itself."""
    for one in shown if environment.image else ():
        missing = [place for place in one.places if not visible(environment, place)]
        if missing:
            text = f"ranks run in an image, and no mount of the environment shows them {one.what}"
            what = "add " + " and ".join(f'"{place}:{place}:ro"' for place in missing)
            what += " to `mounts`, unless the site mounts it"
            saying.warn(one.key, "data-not-mounted", text, given=", ".join(missing), next=what)


def _engine(loaded: LoadedJob, environment: Environment, saying: JobFindings) -> str:
    """Return the engine that the site names, else the first that this machine can run; nodes elsewhere answer later.

    Raises:
        EngineError: this machine cannot run it.
    """
    named = loaded.cluster.environment.engine
    if not abilities(loaded.cluster.scheduler).several_machines:
        return choose_engine(environment, named).engine.name
    engine = named or PREFERENCE[0]
    text = f"the environment runs by the engine {engine}; whether the nodes can is looked at there, before the ranks"
    saying.info(_KEY, "engine", text, given=loaded.job.environment)
    return engine


def _mounts(loaded: LoadedJob, environment: Environment, saying: JobFindings) -> None:
    """Name the sources of mounts that are not there: an error here, a warning where nodes may have them."""
    for mount in environment.mounts:
        if os.path.exists(mount.source):
            continue
        text = f"the environment mounts {mount.source}, which is not there"
        what = "correct the path in `mounts`, or make it"
        if not abilities(loaded.cluster.scheduler).several_machines:
            saying.error(_KEY, "no-mount-source", text, given=mount.source, next=what)
        else:
            saying.warn(_KEY, "no-mount-source", text, given=mount.source, next=f"{what}; the nodes may have it")


def _placed(loaded: LoadedJob, finding: Finding) -> Finding:
    file, line = loaded.place(_KEY)
    return finding if finding.file else replace(finding, file=file, line=line)


def _finding(loaded: LoadedJob, error: CordeeError, rule: str) -> Finding:
    file, line = loaded.place(_KEY)
    details: dict[str, Any] = {"given": error.given, "allowed": error.allowed, "next": error.next}
    return Finding(error.text, "error", rule, file=error.file or file, line=error.line or line, **details)


def keep_environment(folder: RunFolder, loaded: LoadedJob, plan: model.Plan) -> tuple[str, ...]:
    """Keep the EDFs as they were given, the first base first, and the document that they resolved to."""
    environment = plan.step.environment
    if environment is not None:
        kept = folder.documents / "environment"
        kept.mkdir(mode=0o700)
        for number, path in enumerate(environment.files, start=1):
            write_atomically(kept / f"{number}-{Path(path).name}", Path(path).read_bytes())
        write_atomically(folder.documents / "environment.json", json.dumps(environment.document, indent=1))
    return ()
