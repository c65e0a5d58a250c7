"""What tests and steps are to their graph: a test is judged, a step has outputs, and one that is done is not done again."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional

from cordee.core.errors import CordeeError, RunFolderError
from cordee.core.findings import Finding
from cordee.machine.foreign_files import read_json
from cordee.runs.children import Child, ChildEnd, GraphPart, read_graph
from cordee.runs.folder import RunFolder, write_atomically
from cordee.runs.journal import read_journal
from cordee.runs.state import replay
from cordee.systems.steps.node.digests import digests_of, step_digest
from cordee.systems.steps.node.judge import JobRequest, judged, predicted
from cordee.systems.steps.node.learned import learn

# Parents of the same job that are looked through for steps that are done, the newest first.
_MOST_PARENTS = 100


class StepsPart(GraphPart):
    """Made for each question; it keeps nothing."""

    def ended(self, child: Child, folder: RunFolder, end: ChildEnd) -> ChildEnd:
        """Judge the request by a test, and look whether a step has left what it should."""
        if end.state != "finished":
            return end
        if child.about.get("kind") == "test":
            return self._tested(child, folder, end)
        where = self._where(child)
        left = digests_of(where, child.about["outputs"])
        missing = [name for name, digest in left.items() if digest is None]
        if missing:
            text = "it ended well and left no " + ", ".join(missing)
            what = f"correct outputs of the step {child.name}, or have it write below {where}"
            finding = Finding(text, "error", "missing-output", given=missing, next=what)
            return ChildEnd("failed", 1, "missing_output", text, findings=(finding,))
        known = self._entries().get(child.name, {}).get("outcome") or {}
        return end._replace(outcome={"digest": known.get("digest"), "outputs": left})

    def skipped(self, child: Child, entries: Mapping[str, Mapping[str, Any]]) -> Optional[ChildEnd]:
        """Return the end of a step that an earlier run of the same job has done, as long as all that it left is there."""
        if child.about.get("kind") != "step" or child.about.get("again") or child.about.get("travels"):
            return None  # of one that travelled, what comes next would lack the files
        digest = self._digest(child, entries)
        for run, outcome in self._earlier(child.name):
            if outcome.get("digest") != digest:
                continue
            if digests_of(Path(str(child.about["folder"])), child.about["outputs"]) != outcome["outputs"]:
                continue
            return ChildEnd("skipped", 0, "done_before", f"done by {run}", {**outcome, "by": run})
        return None

    def starting(self, child: Child, entries: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Keep what a step reads as it is now: somebody may change it while it runs."""
        return {"digest": self._digest(child, entries)} if child.about.get("kind") == "step" else {}

    def main_starts(self) -> None:
        """What the test saved is no checkpoint of the job."""
        _ignore_what_is_there(self.parent)

    def _where(self, child: Child) -> Path:
        """Return the folder that steps write to: the job's, or the copy of it that steps share where machines do not see the job's."""
        return self.parent.code if child.about.get("travels") else Path(str(child.about["folder"]))

    def _tested(self, child: Child, folder: RunFolder, end: ChildEnd) -> ChildEnd:
        if child.about.get("judge") == "off":
            return end
        try:
            plan = read_json(self.parent.plan, self.parent.root)
            where = plan["steps"][0]["checkpoint"]["path"]
            own = read_json(folder.plan, folder.root)["steps"][0]["checkpoint"]["path"]
            learned, asked = learn(folder, own), JobRequest.of(plan)
            asked = asked._replace(gpu_memory_bytes=child.about.get("gpu_memory_bytes"))
        except (CordeeError, OSError, ValueError, LookupError, TypeError) as error:
            text = f"what the test has shown is not known: {error}"
            return end._replace(findings=(Finding(text, "warn", "test-unknown"),))
        steps = child.about.get("steps")
        findings = judged(learned, asked, steps, where)
        outcome = {"learned": learned._asdict(), "predicted": predicted(learned, asked, steps)}
        small = [finding for finding in findings if finding.severity == "error"]
        if small and child.about.get("judge") == "refuse":
            text = "the test ended well, and the job asks for less than it needs: " + "; ".join(f.text for f in small)
            return ChildEnd("failed", 1, "too_small", text, outcome, tuple(findings))
        softer = tuple(replace(each, severity="warn") if each in small else each for each in findings)
        return end._replace(outcome=outcome, findings=softer)

    def _digest(self, child: Child, entries: Mapping[str, Mapping[str, Any]]) -> str:
        before = {name: (entries.get(name, {}).get("outcome") or {}).get("outputs") or {} for name in child.after}
        return step_digest(self.parent, child.about, before)

    def _entries(self) -> Dict[str, Dict[str, Any]]:
        state = replay(read_journal(self.parent.journal), self.parent.id)
        return {entry["name"]: entry for entry in state.children}

    def _earlier(self, name: str) -> Iterator[Any]:
        """Yield (run, outcome) of the ends of a step in other runs of the same job, the newest first."""
        job = self.parent.id.rsplit("-", 2)[0]
        beside = self.parent.root.parent
        try:
            ids = sorted((each for each in os.listdir(beside) if each.rsplit("-", 2)[0] == job), reverse=True)
        except OSError:
            return
        for run in ids[:_MOST_PARENTS]:
            other = RunFolder(beside / run)
            if other.root == self.parent.root:
                continue
            try:
                if read_graph(other) is None:
                    continue
                ends = _ends(read_journal(other.journal), name)
            except RunFolderError:
                continue
            for outcome in reversed(ends):
                yield outcome.get("by") or run, outcome


def _ends(events: List[Dict[str, Any]], name: str) -> List[Dict[str, Any]]:
    found = []
    for event in events:
        if (
            event["event"] == "child_ended"
            and event.get("child") == name
            and event.get("state") in ("finished", "skipped")
        ):
            outcome = event.get("outcome")
            if isinstance(outcome, dict) and isinstance(outcome.get("outputs"), dict):
                found.append(outcome)
    return found


def _ignore_what_is_there(folder: RunFolder) -> None:
    """Write into the plan of a job that what lies in its folder of checkpoints by now is none of its own.

    Raises:
        RunFolderError: the plan cannot be written.
    """
    try:
        plan = read_json(folder.plan, folder.root)
        policy = plan["steps"][0]["checkpoint"]
        place = Path(policy["path"])
        if policy["own_folder"] or not place.is_dir():
            return
        there = {str(path.relative_to(place)): path.stat().st_mtime_ns for path in place.glob(policy["pattern"])}
    except (OSError, ValueError, LookupError, TypeError):
        return
    if there and there != policy["ignore"]:
        policy["ignore"] = {**policy["ignore"], **there}
        write_atomically(folder.plan, json.dumps(plan, indent=1))
