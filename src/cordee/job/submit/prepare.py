"""From a document to a run folder that is ready to be submitted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordee.core.backends import is_known
from cordee.core.documents.config_paths import runs_path
from cordee.core.documents.files import write_new
from cordee.core.errors import DocumentError, RunFolderError, SubmitError
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.core.registry import all_systems
from cordee.core.secrets import masked_document, masked_text
from cordee.job.command_line import argv_of, document_of
from cordee.job.document import AUTO_MEMORY
from cordee.job.load import LoadedJob, load_command, load_job
from cordee.job.plan.compile import make_plan
from cordee.job.plan.model import Plan
from cordee.job.plan.render import data_variables, leaves, render_plan, render_provenance
from cordee.job.submit import submitter
from cordee.job.submit.children import PreparedChildren, create_children, merged_findings, prepare_children
from cordee.runs.folder import RunFolder, new_run_id, write_atomically
from cordee.runs.journal import client_journal
from cordee.runs.snapshot import snapshot_code


@dataclass(frozen=True)
class Prepared:
    """A plan with what there is to say about it; nothing has been written yet."""

    loaded: LoadedJob
    plan: Plan
    findings: list[Finding]
    script: str
    children: PreparedChildren | None = None

    @property
    def valid(self) -> bool:
        """Whether it may be submitted."""
        return not any(finding.severity == "error" for finding in self.findings)

    def require_valid(self) -> None:
        """Raise DocumentError when it may not be submitted."""
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if errors:
            first = errors[0]
            details = {
                "file": first.file,
                "line": first.line,
                "given": first.given,
                "allowed": first.allowed,
                "next": first.next,
            }
            raise DocumentError(first.text, findings=errors, **details)

    def document(self, *, explain: bool) -> dict[str, Any]:
        """Return the document of `cordee check`."""
        request = self.plan.step.request
        document = {
            "schema": "cordee.check/1",
            "valid": self.valid,
            "findings": [finding.document() for finding in self.findings],
            "script": masked_text(self.script),
            "nodes": request.nodes,
            "ranks": request.nodes * request.ranks_per_node,
            "plan": masked_document(self.plan.document(), data_variables(self.plan.step)),
        }
        if self.children is not None:
            document["children"] = self.children.document()
        if explain:
            document["provenance"] = _provenance(self.loaded)
        return document

    def text(self, *, explain: bool) -> str:
        """Return what `cordee check` prints."""
        text = render_plan(self.plan, self.script, whole=explain)
        if self.children is not None:
            text = self.children.text() + text
        return text + "\n" + render_provenance(self.loaded) if explain else text


def prepare(spec: str, cluster: str, flags: dict[str, Any], runs: Path | None, program: Sequence[str] = ()) -> Prepared:
    """Read, validate and plan a job; changes nothing.

    Args:
        program: what to run, in place of `spec`: a script or a command with its arguments.
        runs: the folder for runs; None: the one that the cluster's profile names, else `runs` here.

    Raises:
        DocumentError, UsageError: as `load_job`.
    """
    if program:
        loaded = load_command(argv_of(program), cluster=cluster, flags=flags)
    else:
        loaded = load_job(spec, cluster=cluster, flags=flags)
    run_id = new_run_id(loaded.job.name)
    folder = RunFolder((runs or runs_path(loaded.cluster.runs or "runs")) / run_id)
    loaded, sized = _without_auto(loaded, folder.root.parent)
    plan, findings = make_plan(loaded, run_id=run_id, run_folder=folder.root)
    findings = [*findings, *sized]
    children = prepare_children(loaded, folder)
    if children is not None:
        findings = merged_findings(findings, children)
    script = submitter(plan.backend).script(folder, plan.document()) if is_known(plan.backend) else ""
    return Prepared(loaded, plan, [_masked(finding) for finding in findings], script, children)


def _without_auto(loaded: LoadedJob, runs: Path) -> tuple[LoadedJob, list[Finding]]:
    """Return a job with what `auto` stands for, as systems know it from earlier runs."""
    need = loaded.job.need
    if need.memory != AUTO_MEMORY:
        return loaded, []
    known: dict[str, Any] = {"memory": None}
    findings: list[Finding] = []
    for system in all_systems():
        if system.auto:
            values, said = load(system.auto)(loaded, runs)
            known.update(values)
            findings += said
    job = loaded.job.model_copy(update={"need": need.model_copy(update=known)})
    return replace(loaded, job=job), findings


def _masked(finding: Finding) -> Finding:
    return replace(finding, text=masked_text(finding.text), given=masked_document(finding.given))


def save_document(prepared: Prepared, flags: dict[str, Any]) -> None:
    """Keep the document that was made for a command line, with what flags gave, in the job's folder.

    Raises:
        DocumentError: there is one already, or it cannot be written.
    """
    write_new(prepared.loaded.path, document_of(prepared.loaded.job.run, flags))


def create_run(prepared: Prepared) -> RunFolder:
    """Write the run folder: documents, provenance, code, node side, the plan and the first line of the journal.

    Raises:
        RunFolderError: it cannot be written; what was begun is removed.
    """
    from cordee.job.submit.bundle import link_node_zip

    plan, loaded = prepared.plan, prepared.loaded
    folder = RunFolder.create(Path(plan.folder).parent, plan.run)
    try:
        write_atomically(folder.documents / loaded.path.name, loaded.text)
        no_code = [
            place for system in loaded.systems if system.keep for place in load(system.keep)(folder, loaded, plan)
        ]
        write_atomically(folder.provenance, json.dumps(_provenance(loaded), indent=1))
        digest = snapshot_code(loaded.folder, folder.code, folder.code_manifest, without=tuple(map(Path, no_code)))
        packages = [system.package for system in loaded.systems if system.package]
        link_node_zip(folder.node_zip, packages, plan.backend_part)
        write_atomically(folder.submit / submitter(plan.backend).script_name, prepared.script)
        if prepared.children is not None:
            create_children(folder, prepared.children, digest)
        frozen = plan.model_copy(update={"code_digest": digest})
        write_atomically(folder.plan, json.dumps(frozen.document(), indent=1))
        journal = client_journal(folder.journal)
        request = plan.step.request
        journal.append(
            "submitted", backend=plan.backend, nodes=request.nodes, ranks=request.nodes * request.ranks_per_node
        )
        if journal.last_error is not None:
            raise journal.last_error
    except (OSError, RunFolderError, SubmitError) as error:
        shutil.rmtree(folder.root, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        raise RunFolderError(
            f"cannot write the run folder: {error.strerror}",
            given=str(folder.root),
            allowed="a folder on a disk with space that you may write",
            next="make room, or choose another place with --runs DIR",
        ) from error
    return folder


def _provenance(loaded: LoadedJob) -> dict[str, Any]:
    """Return where each value came from; it says nothing that a run needs, so that no secret is in it."""
    return {
        key: {"value": value, "origin": str(loaded.provenance.get(key, "default"))} for key, value in leaves(loaded)
    }
