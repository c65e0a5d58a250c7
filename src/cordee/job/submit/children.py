"""The runs below a run, from jobs to folders that are ready to be handed over."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordee.core.backends import is_known
from cordee.core.findings import Finding
from cordee.core.parts import load
from cordee.core.secrets import masked_text
from cordee.core.units import format_duration
from cordee.job.load import LoadedJob
from cordee.job.plan.children import ChildJob, ChildJobs
from cordee.job.plan.compile import make_plan
from cordee.job.plan.model import Plan
from cordee.job.submit import SubmitsTogether, submitter
from cordee.runs.children import FOLDER, Child, Graph, write_graph
from cordee.runs.folder import RunFolder, new_run_id, write_atomically
from cordee.runs.journal import client_journal


@dataclass(frozen=True)
class PreparedChild:
    """One child: its job, its plan, what would be submitted, and what there is to say about it."""

    job: ChildJob
    plan: Plan
    script: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class PreparedChildren:
    """All children of a job."""

    jobs: ChildJobs
    children: tuple[PreparedChild, ...]

    def document(self) -> list[dict[str, Any]]:
        """Return them as `cordee check --json` has them."""
        return [
            {
                "name": child.job.name,
                "after": list(child.job.after),
                "nodes": child.plan.step.request.nodes,
                "ranks": child.plan.step.request.nodes * child.plan.step.request.ranks_per_node,
                "command": masked_text(shlex.join(child.plan.step.tasks.argv)),
                "script": masked_text(child.script),
            }
            for child in self.children
        ]

    def text(self) -> str:
        """Return them in words, one line each."""
        lines = [f"runs         {self._order()}, each a run of its own"]
        for child in self.children:
            request = child.plan.step.request
            after = f", after {', '.join(child.job.after)}" if child.job.after else ""
            time = f", {format_duration(request.time_s)}" if request.time_s else ""
            gpus = f", {request.gpus_per_node} GPUs each" if request.gpus_per_node else ""
            nodes = f"{request.nodes} node{'' if request.nodes == 1 else 's'}"
            lines.append(f"  {child.job.name:10} {nodes}{gpus}{time}{after}")
            lines.append(f"  {'':10} {masked_text(shlex.join(child.plan.step.tasks.argv))}")
        if self._together():
            lines.append(
                "  those that ask for the same are one submission, with a job for each; below is one job alone"
            )
        if self.jobs.main:
            lines.append(f"  {'the job':10} after {', '.join(child.job.name for child in self.children)}, as follows")
        return "\n".join(lines) + "\n\n"

    def _order(self) -> str:
        """Return in which order they run, in words."""
        after = [child.job.after for child in self.children]
        names = [child.job.name for child in self.children]
        if len(names) > 1 and not any(after):
            return "side by side"
        in_line = all(name in needs for name, needs in zip(names, after[1:], strict=False))
        return "one after the other" if in_line else "as soon as those before them are done"

    def _together(self) -> bool:
        """Return whether their place takes several at once, and several may start at once."""
        after = {child.job.after for child in self.children}
        backends = {child.plan.backend for child in self.children if is_known(child.plan.backend)}
        return len(after) < len(self.children) and any(isinstance(submitter(one), SubmitsTogether) for one in backends)


def prepare_children(loaded: LoadedJob, parent: RunFolder) -> PreparedChildren | None:
    """Return the children that systems make of a job, planned; None where there are none. Nothing is written."""
    wanted: ChildJobs | None = None
    for system in loaded.systems:
        if system.children and wanted is None:
            wanted = load(system.children)(loaded)
    if wanted is None:
        return None
    known: dict[int, tuple[Plan, list[Finding]]] = {}
    made = [_prepared(job, loaded, parent, known) for job in wanted.jobs]
    return PreparedChildren(wanted, tuple(made))


def _prepared(
    job: ChildJob, above: LoadedJob, parent: RunFolder, known: dict[int, tuple[Plan, list[Finding]]]
) -> PreparedChild:
    """Return a child; `known` has the plans so far: one job is examined once, however many children have it."""
    run = new_run_id(f"{above.job.name}-{job.name}")
    folder = RunFolder(parent.root / FOLDER / run)
    if id(job.loaded) not in known:
        plan, findings = make_plan(job.loaded, run_id=run, run_folder=folder.root)
        known[id(job.loaded)] = plan.model_copy(update={"parent": str(parent.root)}), findings
    first, findings = known[id(job.loaded)]
    plan = first if first.run == run else Plan.model_validate_json(first.model_dump_json().replace(first.run, run))
    if job.planned is not None:
        plan, said = job.planned(plan)
        findings = [*findings, *said]
    script = submitter(plan.backend).script(folder, plan.document()) if is_known(plan.backend) else ""
    return PreparedChild(job, plan, script, tuple(findings))


def merged_findings(own: Sequence[Finding], children: PreparedChildren) -> list[Finding]:
    """Return what is to be said of a job and of its children: of each thing once, and by name where a child alone has it.

    What is to be said of the job's own command holds only where it is started itself.
    """
    found = [*children.jobs.findings, *(own if children.jobs.main else ())]
    said = {(finding.rule, finding.text) for finding in found}
    for child in children.children:
        for finding in child.findings:
            unsaid = finding.severity != "error" and finding.rule in child.job.unsaid
            if not unsaid and (finding.rule, finding.text) not in said:
                said.add((finding.rule, finding.text))
                found.append(replace(finding, text=f"{child.job.name}: {finding.text}"))
    order = {"error": 0, "warn": 1, "info": 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def create_children(parent: RunFolder, prepared: PreparedChildren, code_digest: str) -> None:
    """Write the folders of the children below their parent's, and the graph; code and node side are the parent's own.

    What is written is made durable once for all of them: file by file, a thousand would take seconds on a good disk.

    Args:
        code_digest: of the parent's snapshot.

    Raises:
        OSError, RunFolderError: they cannot be written.
    """
    entries = []
    for child in prepared.children:
        folder = RunFolder.create(parent.root / FOLDER, child.plan.run)
        loaded = child.job.loaded
        write_atomically(folder.documents / loaded.path.name, loaded.text, durable=False)
        for system in loaded.systems:
            if system.keep:
                load(system.keep)(folder, loaded, child.plan)
        folder.code.symlink_to(Path("..") / ".." / parent.code.name)
        for shared, own in ((parent.node_zip, folder.node_zip), (parent.code_manifest, folder.code_manifest)):
            try:
                os.link(shared, own)
            except OSError:
                shutil.copyfile(shared, own)
        write_atomically(folder.submit / submitter(child.plan.backend).script_name, child.script, durable=False)
        plan = child.plan.model_copy(update={"code_digest": code_digest})
        write_atomically(folder.plan, json.dumps(plan.document(), indent=1), durable=False)
        if child.job.made is not None:
            child.job.made(folder, plan)
        request = plan.step.request
        journal = client_journal(folder.journal)
        ranks = request.nodes * request.ranks_per_node
        journal.append("submitted", durable=False, backend=plan.backend, nodes=request.nodes, ranks=ranks)
        if journal.last_error is not None:
            raise journal.last_error
        entries.append(Child(child.job.name, plan.run, child.job.after, dict(child.job.about)))
    _sync_file_system(parent)
    jobs = prepared.jobs
    write_graph(parent, Graph(tuple(entries), jobs.main, jobs.part))


def _sync_file_system(folder: RunFolder) -> None:
    """Have all that was written be on disk: one call for many files, which no other file system that stands still can hold up."""
    descriptor = os.open(folder.root, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder.root))
    finally:
        os.close(descriptor)
