"""The services of a job: what its plan says of them, and what is wrong with them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cordee.core.errors import CordeeError, DocumentError
from cordee.job.document import JobService
from cordee.job.findings import JobFindings
from cordee.job.load import LoadedJob
from cordee.job.plan.examination import Contribution, Examination, ShownPaths
from cordee.job.plan.model import Plan
from cordee.runs.folder import RunFolder, write_atomically
from cordee.systems.services.blueprint import LoadedBlueprint, Target
from cordee.systems.services.catalogue import find_blueprint
from cordee.systems.services.draft import require_name
from cordee.systems.services.instance import ABOUT, ServiceFolder
from cordee.systems.services.node.texts import FOLDER
from cordee.systems.services.start import Wish, host_document

# A node that was lost may keep its lock until its agent gives up.
_LOCK_WAIT_S = 90.0


class ServicesExamination(Examination):
    """Each service becomes what its host is started from; see Examination."""

    def contribute(self, shown: Sequence[ShownPaths]) -> Contribution:
        saying = JobFindings(self.loaded)
        hosts, variables = {}, dict[str, str]()
        several = self.loaded.job.need.nodes + self.loaded.job.need.spare_nodes > 1
        for name, given in self.loaded.job.services.items():
            key = f"services.{name}"
            try:
                loaded, document = _host(self.loaded, self.run_folder, name, given, several)
            except DocumentError as error:
                first = error.findings[0]
                where = f"{first.file}:{first.line}" if first.line else str(first.file)
                text = f"its blueprint {where} {first.text}" if first.file else first.text
                saying.error(key, first.rule or "bad-value", text, given=first.given, next=first.next)
                continue
            except CordeeError as error:
                saying.error(
                    key, "bad-value", error.text, given=error.given, allowed=error.allowed, next=error.next or ""
                )
                continue
            self._judge(key, loaded, saying)
            for variable in document["client"]:
                if variable in variables:
                    text = f"the services {variables[variable]} and {name} would both set {variable}"
                    saying.error(key, "same-variable", text, given=variable, next="deploy one of them by itself")
                elif variable in self.loaded.job.env:
                    text = f"{variable} of [env] is used, and not what the service {name} would set"
                    saying.warn(f"env.{variable}", "service-env", text, next="remove it from [env]")
                variables.setdefault(variable, name)
            hosts[name] = document
        return Contribution({"before_ranks": True, "hosts": hosts} if hosts else None, saying.findings)

    def _judge(self, key: str, loaded: LoadedBlueprint, saying: JobFindings) -> None:
        """Say what of a blueprint a job has no place for, and what is open to other people."""
        blueprint = loaded.blueprint
        if blueprint.need.gpus:
            text = f"{blueprint.name} needs a GPU, and those of the job are its ranks'"
            what = f"`cordee service deploy {blueprint.name}` by itself"
            saying.error(key, "service-gpu", text, given=blueprint.need.gpus, next=what)
        if blueprint.after:
            text = f"{blueprint.name} comes after {', '.join(blueprint.after)}, which a job cannot put in order"
            saying.error(key, "service-after", text, next="deploy both by themselves")
        if not blueprint.client:
            text = f"{blueprint.name} has no [client]: ranks are told nothing of it"
            saying.warn(key, "service-no-client", text, next="add [client] to its blueprint")
        if blueprint.guard == "none":
            text = f"{blueprint.name} asks nobody for credentials: every user of the node can open it"
            saying.warn(key, "service-open", text, next="choose a service with a password or token")


def _host(
    loaded: LoadedJob, run_folder: Path, name: str, given: JobService, several: bool
) -> tuple[LoadedBlueprint, dict[str, Any]]:
    """Return a service's blueprint and what its host is started from.

    Raises:
        CordeeError: it cannot run beside ranks.
    """
    found = _blueprint(loaded, given)
    target: Target = "process" if found.blueprint.argv is not None else "podman"
    wish = Wish(target, loaded.cluster.name, dict(given.set), bind="network" if several else "loopback")
    document = host_document(found, ServiceFolder(run_folder / FOLDER / require_name(name)), 1, wish)
    document.update(tells=True, idle_s=None, lock_wait_s=_LOCK_WAIT_S)
    return found, document


def _blueprint(loaded: LoadedJob, given: JobService) -> LoadedBlueprint:
    is_file = given.service.endswith(".toml") or os.sep in given.service
    return find_blueprint(str(loaded.folder / given.service) if is_file else given.service)


def keep_services(folder: RunFolder, loaded: LoadedJob, plan: Plan) -> tuple[str, ...]:
    """Make the folder of each service below the run's: its blueprint, and its secrets.

    Raises:
        CordeeError: a secret cannot be had.
    """
    for name, given in loaded.job.services.items():
        found, place = _blueprint(loaded, given), ServiceFolder(folder.root / FOLDER / name)
        place.make()
        place.make_volumes(found.blueprint)
        place.keep_revision(found)
        write_atomically(place.root / ABOUT, json.dumps({"service": name, "parameters": dict(given.set)}))
        place.keep_secrets(found.blueprint)
    return ()
