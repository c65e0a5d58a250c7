"""The contract of the submit seam: what every place that runs jobs must do, whatever it is.

A new back end writes a `SubmitterSite` (or a `SchedulerSite`), and subclasses the contract with a fixture of that name:

```python
class TestMine(SubmitterContract):
    @pytest.fixture
    def site(self, tmp_path):
        with MySite(tmp_path) as site:
            yield site
```
"""

from __future__ import annotations

import copy
import re
import shlex
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import SubmitError
from cordee.job.submit import Standing, Submitter
from cordee.runs.folder import RunFolder
from cordee.testing.patience import wait_until

_PATIENCE_S = 60.0
_POLL_S = 0.2

Placeable = tuple[RunFolder, dict[str, Any]]


class SubmitterSite(ABC):
    """A place under test.

    Attributes:
        patience_s: how long a change may take until the place shows it.
    """

    patience_s = _PATIENCE_S

    @abstractmethod
    def submitter(self) -> Submitter:
        """Return a submitter that knows nothing yet, as a new command line has."""

    @abstractmethod
    def run(self) -> Placeable:
        """Return a new run that goes on until it is cancelled, with its plan; not yet submitted."""

    @abstractmethod
    def held(self, folder: RunFolder) -> int:
        """Return how many times the place holds a run, asked without the submitter."""


class SchedulerSite(SubmitterSite):
    """A place with a queue that can be full, away, or unwilling.

    Attributes:
        mark: what tells a run's jobs from all others in the queue.
    """

    mark = "cordee:{run}"

    @abstractmethod
    def full(self) -> AbstractContextManager[None]:
        """Let nothing start until the block ends."""

    @abstractmethod
    def away(self) -> AbstractContextManager[None]:
        """Let the place answer nobody until the block ends."""

    @abstractmethod
    def away_for_a_moment(self) -> AbstractContextManager[None]:
        """Let the place answer nobody at first, and come back by itself."""

    @abstractmethod
    def losing_answers(self) -> AbstractContextManager[None]:
        """Let the next submission be accepted and its answer be lost."""

    @abstractmethod
    def refused(self) -> Placeable:
        """Return a run that asks for what the place does not have."""

    @abstractmethod
    def commands(self) -> list[list[str]]:
        """Return the command lines that the place was asked with so far."""


class SubmitterContract:
    """What any submitter does."""

    def test_the_script_is_text_that_names_what_runs(self, site: SubmitterSite) -> None:
        folder, plan = site.run()
        script = site.submitter().script(folder, plan)
        assert script.endswith("\n")
        for word in plan["steps"][0]["tasks"]["argv"]:
            assert shlex.quote(word) in script

    def test_the_script_is_the_same_twice_and_nothing_is_changed_by_asking(self, site: SubmitterSite) -> None:
        folder, plan = site.run()
        before, given = files_of(folder), copy.deepcopy(plan)
        assert site.submitter().script(folder, plan) == site.submitter().script(folder, plan)
        assert (files_of(folder), plan) == (before, given)

    def test_submitting_returns_the_name_that_the_place_gave(self, site: SubmitterSite) -> None:
        folder, plan = site.run()
        given = copy.deepcopy(plan)
        name = site.submitter().submit(folder, plan)
        assert name.strip() == name != ""
        assert plan == given
        assert wait_for(site, folder, "running").job == name

    def test_submitting_twice_places_once(self, site: SubmitterSite) -> None:
        folder, plan = site.run()
        names = {site.submitter().submit(folder, plan) for _ in range(2)}
        assert len(names) == 1
        assert site.held(folder) == 1

    def test_a_run_that_was_never_submitted_is_gone(self, site: SubmitterSite) -> None:
        folder, _ = site.run()
        assert site.submitter().standing(folder, age_s=0).state == "gone"
        assert not site.submitter().active(folder)

    def test_cancelling_a_running_run_takes_it_away(self, site: SubmitterSite) -> None:
        folder, plan = site.run()
        site.submitter().submit(folder, plan)
        wait_for(site, folder, "running")
        assert site.submitter().active(folder)
        site.submitter().cancel(folder)
        wait_for(site, folder, "gone")
        wait_until(lambda: site.held(folder) == 0, site.patience_s)

    def test_cancelling_what_is_gone_is_no_error(self, site: SubmitterSite) -> None:
        folder, plan = site.run()
        site.submitter().cancel(folder)
        site.submitter().submit(folder, plan)
        for _ in range(2):
            site.submitter().cancel(folder)
        wait_for(site, folder, "gone")

    def test_cancelling_one_run_leaves_the_others(self, site: SubmitterSite) -> None:
        (one, plan), (other, other_plan) = site.run(), site.run()
        site.submitter().submit(one, plan)
        site.submitter().submit(other, other_plan)
        wait_for(site, other, "running")
        site.submitter().cancel(one)
        wait_for(site, one, "gone")
        assert site.held(other) == 1

    def test_standings_are_in_the_order_of_the_folders(self, site: SubmitterSite) -> None:
        (one, plan), (never, _), (other, other_plan) = site.run(), site.run(), site.run()
        assert site.submitter().standings([]) == []
        names = [site.submitter().submit(one, plan), site.submitter().submit(other, other_plan)]
        wait_for(site, one, "running")
        wait_for(site, other, "running")
        one_, never_, other_ = site.submitter().standings([one, never, other], age_s=0)
        assert (one_.job, never_.state, other_.job) == (names[0], "gone", names[1])


class SchedulerContract(SubmitterContract):
    """What a submitter does besides when its place has a queue."""

    def test_a_run_that_waits_says_why_and_can_be_cancelled(self, site: SchedulerSite) -> None:
        folder, plan = site.run()
        with site.full():
            name = site.submitter().submit(folder, plan)
            standing = wait_for(site, folder, "waiting")
            assert standing.job == name
            assert standing.reason
            assert site.submitter().active(folder)
            site.submitter().cancel(folder)
            wait_for(site, folder, "gone")
            assert site.held(folder) == 0

    def test_a_run_that_waited_runs(self, site: SchedulerSite) -> None:
        folder, plan = site.run()
        with site.full():
            name = site.submitter().submit(folder, plan)
            wait_for(site, folder, "waiting")
        assert wait_for(site, folder, "running").job == name

    def test_a_refusal_says_what_was_given_and_what_to_do(self, site: SchedulerSite) -> None:
        folder, plan = site.refused()
        with pytest.raises(SubmitError) as caught:
            site.submitter().submit(folder, plan)
        assert caught.value.text
        assert caught.value.given
        assert caught.value.next
        assert site.held(folder) == 0
        assert site.submitter().standing(folder, age_s=0).state == "gone"

    def test_a_place_that_does_not_answer_is_unknown_and_not_gone(self, site: SchedulerSite) -> None:
        folder, plan = site.run()
        site.submitter().submit(folder, plan)
        with site.away():
            standing = site.submitter().standing(folder, age_s=0)
            assert standing.state == "unknown"
            assert standing.reason
            assert site.submitter().active(folder)

    def test_a_submission_outlasts_a_place_that_is_away_for_a_moment(self, site: SchedulerSite) -> None:
        folder, plan = site.run()
        with site.away_for_a_moment():
            name = site.submitter().submit(folder, plan)
        assert site.held(folder) == 1
        assert wait_for(site, folder, "running").job == name

    def test_a_submission_whose_answer_is_lost_is_found_and_not_repeated(self, site: SchedulerSite) -> None:
        folder, plan = site.run()
        with site.losing_answers():
            name = site.submitter().submit(folder, plan)
        assert site.held(folder) == 1
        assert wait_for(site, folder, "running").job == name

    def test_many_runs_are_one_question(self, site: SchedulerSite) -> None:
        runs = [site.run() for _ in range(3)]
        for folder, plan in runs:
            site.submitter().submit(folder, plan)
        for folder, _ in runs:
            wait_for(site, folder, "running")
        asked = [len(site.commands())]
        submitter = site.submitter()
        for folders in ([runs[0][0]], [folder for folder, _ in runs]):
            submitter.standings(folders, age_s=0)
            submitter = site.submitter()
            asked.append(len(site.commands()))
        assert asked[2] - asked[1] <= max(1, asked[1] - asked[0])

    def test_every_job_carries_the_run(self, site: SchedulerSite) -> None:
        folder, plan = site.run()
        site.submitter().submit(folder, plan)
        mark = site.mark.format(run=folder.id)
        assert re.search(rf"{re.escape(mark)}\b", " ".join(word for line in site.commands() for word in line)) or (
            mark in site.submitter().script(folder, plan)
        )


def wait_for(site: SubmitterSite, folder: RunFolder, state: str) -> Standing:
    """Return the run's standing once it is in a state.

    Raises:
        TimeoutError: it is not, for all the site's patience.
    """
    seen: list[Standing] = []

    def reached() -> bool:
        seen.append(site.submitter().standing(folder, age_s=0))
        return seen[-1].state == state

    wait_until(reached, site.patience_s, said=lambda: f"{state}, but {seen[-1]}")
    return seen[-1]


def files_of(folder: RunFolder) -> dict[Path, bytes]:
    """Return what lies in a run's folder."""
    return {path: path.read_bytes() for path in folder.root.rglob("*") if path.is_file()}
