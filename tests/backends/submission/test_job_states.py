"""How rarely Slurm is asked, whoever wants to know, and what counts as an answer."""

from __future__ import annotations

import pytest

from cordee.backends.slurm import job_states
from cordee.backends.slurm.job_states import JobStatus, SlurmJobStates
from cordee.backends.slurm.node.commands import QueuedJob, SlurmError
from support.clocks import give_clock


class Site:
    """What Slurm would say, a clock, and how often it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.questions = 1000.0, []
        self.jobs = [QueuedJob("1", "RUNNING", "None", "cordee:a")]
        self.accounting: dict[str, JobStatus] | None = None
        self.away = False
        give_clock(monkeypatch, job_states.__name__, time=lambda: self.now)
        monkeypatch.setattr(job_states, "my_jobs", self._squeue)
        monkeypatch.setattr(job_states, "_from_sacct", self._sacct)

    def _squeue(self, **options):
        self.questions.append("squeue")
        if self.away:
            raise SlurmError(["squeue"], "Unable to contact slurm controller", busy=True)
        return self.jobs

    def _sacct(self, ids):
        self.questions.append("sacct")
        if self.accounting is None:
            raise SlurmError(["sacct"], "Slurm accounting storage is disabled")
        return {job: self.accounting[job] for job in ids if job in self.accounting}


@pytest.fixture
def site(monkeypatch):
    return Site(monkeypatch)


@pytest.fixture
def ask(tmp_path):
    """Every call is another process: they share the file only."""
    return lambda *ids, age_s=30.0: SlurmJobStates(tmp_path / "cache.json").answer(ids, age_s=age_s)


def test_all_commands_together_ask_at_most_twice_a_minute(site, ask):
    for _ in range(120):
        site.now += 1.0
        ask("1", "2", age_s=0.5)
    assert len(site.questions) <= 2 * 2 + 2
    assert "squeue" in site.questions


def test_where_there_is_no_sacct_it_is_not_asked_again_for_an_hour(site, ask):
    for _ in range(50):
        site.now += 61.0
        ask("1")
    assert site.questions.count("sacct") == 1


def test_sacct_is_enough_for_jobs_that_simply_run(site, ask):
    site.accounting = {"1": JobStatus("RUNNING", "", "")}
    assert ask("1").jobs["1"].state == "RUNNING"
    assert site.questions == ["sacct"]


def test_what_sacct_takes_for_ended_is_asked_of_the_controller(site, ask):
    site.accounting = {"1": JobStatus("NODE_FAIL", "", "")}
    answer = ask("1")
    assert answer.jobs["1"].state == "RUNNING"
    assert answer.gone == {}


def test_a_person_who_acts_is_answered_at_once(site, ask):
    for _ in range(5):
        assert ask("1", age_s=0.0).complete
    assert site.questions.count("squeue") == 5


def test_a_controller_that_is_away_is_asked_less_and_less_often(site, ask):
    site.away = True
    for _ in range(3600):
        site.now += 1.0
        answer = ask("1", age_s=1.0)
    assert not answer.complete
    assert "contact" in answer.trouble
    assert site.questions.count("squeue") < 12


def test_a_job_that_was_placed_after_the_answer_is_not_in_it(site, ask):
    ask("1")
    ask("1", age_s=0.0)
    answer = ask("1", "9")
    assert "9" not in answer.asked_for


def test_it_is_remembered_since_when_a_job_is_gone(site, ask):
    site.jobs = [QueuedJob("1", "FAILED", "None", "cordee:a")]
    first = ask("1").gone["1"]
    site.now += 90.0
    assert ask("1").gone["1"] == first
    site.jobs = [QueuedJob("1", "PENDING", "BeginTime", "cordee:a")]
    site.now += 90.0
    assert ask("1").gone == {}


@pytest.mark.parametrize("others", [1, 4])
def test_since_when_a_job_is_gone_is_kept_whatever_others_ask_for(site, ask, others):
    site.jobs = [QueuedJob("1", "FAILED", "None", "cordee:a"), QueuedJob("2", "RUNNING", "None", "cordee:b")]
    site.now, gone_s = 1_000_000.0, 0.0
    for _ in range(18):
        site.now += 10.0
        for other in range(others):
            ask(str(2 + other))
        answer = ask("1")
        gone_s = max(gone_s, answer.at - answer.gone.get("1", answer.at))
    assert gone_s >= 60.0
    assert len(site.questions) <= 2 * 3 + 2


def test_a_job_that_another_command_has_just_named_is_in_the_next_answer(site, ask):
    site.accounting = {"1": JobStatus("RUNNING", "", ""), "2": JobStatus("RUNNING", "", "")}
    ask("1", age_s=0.0)
    ask("1", age_s=0.0)
    assert "2" not in ask("2").asked_for  # this minute's questions are used up
    site.now += 61.0
    assert ask("1", age_s=1.0).asked_for == {"1", "2"}


def test_a_controller_that_does_not_answer_makes_nothing_forgotten(site, ask):
    site.jobs = [QueuedJob("1", "FAILED", "None", "cordee:a")]
    first = ask("1").gone["1"]
    site.away, site.now = True, site.now + 90.0
    assert ask("1", age_s=0.0).gone == {"1": first}


def test_what_nobody_asks_for_any_more_is_forgotten(site, ask):
    site.jobs = [QueuedJob("1", "FAILED", "None", "cordee:a")]
    ask("1")
    site.now += 700.0
    answer = ask("2")
    assert (answer.asked_for, answer.gone.keys()) == ({"2"}, {"2"})


def test_what_others_learned_while_slurm_was_slow_to_answer_stays(site, ask, monkeypatch):
    site.jobs = [QueuedJob("1", "FAILED", "None", "cordee:a"), QueuedJob("2", "RUNNING", "None", "cordee:b")]
    quick = site._squeue

    def slow(**options):
        monkeypatch.setattr(job_states, "my_jobs", quick)
        ask("1", age_s=0.0)
        site.now += 5.0
        return quick()

    monkeypatch.setattr(job_states, "my_jobs", slow)
    ask("2", age_s=0.0)
    assert ask("1").gone["1"] == 1000.0


def test_a_damaged_cache_is_no_answer(site, ask, tmp_path):
    (tmp_path / "cache.json").write_text("{torn")
    assert ask("1").complete
