"""The job that starts what comes next of a run's children, without a pool."""

from __future__ import annotations

import pytest

from cordee.backends.htcondor import graph_job
from cordee.backends.htcondor.submitter import HTCondorSubmitter
from cordee.core.errors import SubmitError
from cordee.job.submit import Standing, parent
from cordee.job.submit.parent import ParentSubmitter
from cordee.runs.children import FOLDER, Child, Graph, write_graph
from cordee.runs.folder import RunFolder
from cordee.runs.journal import client_journal, read_journal
from cordee.runs.state import RunState, replay

RUN = "it's-a-run"


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    made = RunFolder.create(tmp_path / RUN, RUN)
    client_journal(made.journal).append("submitted", backend="htcondor", nodes=1, ranks=1)
    return made


class Place:
    """Says that the run waits, until it does something else."""

    def __init__(self, *acts) -> None:
        self.acts = list(acts)

    def standing(self, folder: RunFolder, *, age_s: float) -> Standing:
        if self.acts:
            self.acts.pop(0)(folder)
        return Standing("waiting", "1.0")


@pytest.fixture
def slept(monkeypatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(graph_job.time, "sleep", found.append)
    return found


def look(monkeypatch, folder: RunFolder, *acts) -> int:
    place = Place(*acts)
    monkeypatch.setattr(graph_job, "submitter_of", lambda _: place)
    return graph_job.main([str(folder.root)])


def end_of(folder: RunFolder) -> RunState:
    return replay(read_journal(folder.journal), folder.id)


def nothing(folder: RunFolder) -> None:
    """Act as a place where nothing happens."""


def ends(folder: RunFolder) -> None:
    client_journal(folder.journal).append(
        "ended", state="finished", exit_code=0, reason="finished", text="all are done"
    )


def is_placed(folder: RunFolder) -> None:
    client_journal(folder.journal).append("placed", job="7.0")


def refuses(folder: RunFolder) -> None:
    raise SubmitError("the access point does not take it", given="7")


@pytest.mark.parametrize("over", [ends, is_placed])
def test_it_looks_until_the_run_has_ended_or_is_in_the_queue_itself(folder, monkeypatch, slept, over):
    assert look(monkeypatch, folder, nothing, nothing, over, refuses) == 0
    assert len(slept) == 2


def test_what_is_refused_is_tried_again_and_at_last_ends_the_run(folder, monkeypatch, slept):
    assert look(monkeypatch, folder, refuses, nothing, *[refuses] * 10) == 1
    assert len(slept) == 11
    state = end_of(folder)
    assert (state.state, state.reason) == ("failed", "refused")
    assert "what comes next could not be submitted: the access point does not take it" in state.text


def test_it_ends_with_the_folder_of_the_run(folder, monkeypatch, slept):
    def removed(folder: RunFolder) -> None:
        folder.root.rename(folder.root.with_name("elsewhere"))
        refuses(folder)

    assert look(monkeypatch, folder, removed) == 1
    assert slept == []


def test_it_is_submitted_once_and_takes_no_secret_along(folder, monkeypatch):
    asked: list[list[str]] = []
    answers = {"condor_q": "", "condor_submit": "7.0 - 7.0"}

    def answer(argv) -> str:
        asked.append(argv)
        return answers[argv[0]]

    monkeypatch.setattr(graph_job, "run_command", answer)
    monkeypatch.setenv("CORDEE_S3_SECRET", "hush")
    monkeypatch.setenv("CORDEE_RUNS", '/data/my "own" runs')
    graph_job.submit_graph_job(folder)
    answers["condor_q"] = '[{"ClusterId": 7}]'
    graph_job.submit_graph_job(folder)
    assert [argv[0] for argv in asked] == ["condor_q", "condor_submit", "condor_q"]
    text = (folder.submit / "graph.sub").read_text()
    assert "universe = scheduler\nexecutable = /bin/sh\n" in text  # a copy of a Python finds no packages
    assert """CORDEE_RUNS='/data/my ""own"" runs'""" in text
    assert RUN.replace("'", "''") in text
    assert "hush" not in text


@pytest.mark.parametrize(
    ("ads", "words"),
    [
        ("", "not in the queue"),
        ('[{"ClusterId": 9, "JobStatus": 5, "HoldReason": "by the operators"}]', "9, is held: by the operators"),
        (
            '[{"ClusterId": 9, "JobStatus": 1, "EnteredCurrentStatus": 100, "ServerTime": 400}]',
            "9, is idle since 1970-01-01T00:01:40Z",
        ),
        ('[{"ClusterId": 9, "JobStatus": 1, "EnteredCurrentStatus": 100, "ServerTime": 130}]', None),
        ('[{"ClusterId": 9, "JobStatus": 2, "EnteredCurrentStatus": 100, "ServerTime": 400}]', None),
    ],
)
def test_a_parent_says_when_nothing_starts_what_comes_next(folder, monkeypatch, ads, words):
    """A site may refuse jobs in the scheduler universe, and one may be removed by hand."""
    monkeypatch.setattr(graph_job, "run_command", lambda argv: ads)
    write_graph(folder, Graph((Child("a", "a-1"), Child("b", "b-1", ("a",)))))
    below = RunFolder.create(folder.root / FOLDER, "a-1")
    below.plan.write_text('{"backend": "htcondor", "parent": ""}')
    client_journal(folder.journal).append("child_placed", child="a", run="a-1", job="8.0", main=False)
    own = HTCondorSubmitter()
    monkeypatch.setattr(own, "standings", lambda folders, age_s: [Standing("running", "8.0")] * len(folders))
    monkeypatch.setattr(parent, "submitter", lambda _: own)
    (standing,) = ParentSubmitter(own).standings([folder])
    assert (standing.state, standing.job) == ("running", "8.0")
    said = f"what comes next starts only when somebody looks (`cordee watch {RUN}`)"
    assert (words is None) == (standing.reason == "")
    assert words is None or (said in standing.reason and words in standing.reason)


def test_a_parent_that_ends_with_a_child_as_somebody_looks_waits_for_nothing(folder, monkeypatch):
    write_graph(folder, Graph((Child("a", "a-1"), Child("b", "b-1", ("a",)))))
    below = RunFolder.create(folder.root / FOLDER, "a-1")
    below.plan.write_text('{"backend": "htcondor", "parent": ""}')
    client_journal(folder.journal).append("child_placed", child="a", run="a-1", job="8.0", main=False)
    client_journal(below.journal).append(
        "ended", state="cancelled", exit_code=1, reason="cancelled", text="by a person"
    )
    own = HTCondorSubmitter()
    monkeypatch.setattr(own, "standings", lambda folders, age_s: [Standing("gone", None)] * len(folders))
    monkeypatch.setattr(parent, "submitter", lambda _: own)
    (standing,) = ParentSubmitter(own).standings([folder])
    assert standing.state == "gone"
    assert end_of(folder).state == "cancelled"
