"""The contract of the whole seam of back ends: what is asked of each, beside what `cordee.testing.submitting` asks.

A new back end writes a `BackendSite` and subclasses the contract with a fixture of that name; one that queues takes
`QueueContract`:

```python
class TestMine(BackendContract):
    @pytest.fixture
    def site(self, tmp_path):
        with MySite(tmp_path) as site:
            yield site
```
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import signal
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from cordee.control.identity import agent_file, living_record
from cordee.control.supervisor.allocation import Allocation
from cordee.core.backends import Backend, backend
from cordee.core.errors import CordeeError
from cordee.core.parts import load
from cordee.job.submit import plan_of, submitter_of
from cordee.job.submit._base import Submitter
from cordee.job.submit.prepare import Prepared, create_run, prepare
from cordee.runs.folder import RunFolder
from cordee.runs.journal import read_journal
from cordee.runs.state import RunState, replay
from cordee.systems.advise.advice import advise
from cordee.systems.advise.collect import collect_situation
from cordee.testing.patience import wait_until
from cordee.testing.programs import COUNTING

_STEPS = "python train.py 20 0.05"
_LONG = "python train.py 4000 0.1"
_CHILD = """
import sys
from pathlib import Path
from cordee.core.backends import backend_on_node
from cordee.core.parts import load
from cordee.runs.folder import RunFolder
from cordee.runs.plan import read_plan
plan = read_plan(RunFolder(Path(sys.argv[1])))
found = backend_on_node(plan.backend, plan.backend_part)
load(found.allocation), found.rank_environment and load(found.rank_environment)
print(found.name, [name for name in ("pydantic", "numpy", "click") if name in sys.modules])
"""


class BackendSite:
    """A place under test.

    Attributes:
        backend: its name.
        cluster: the cluster to run on.
        folder: for jobs and runs.
        patience_s: how long a run may take to begin and to end.
        nodes: of each run.
    """

    backend: str
    cluster: str
    folder: Path
    patience_s = 240.0
    nodes = 2

    def there(self, folder: RunFolder) -> RunFolder:
        """Return a run's folder as its nodes have it."""
        return folder

    def job(self, run: str = _STEPS, toml: str = "", **flags: Any) -> Prepared:
        """Return a prepared run with one rank on each node."""
        job = self.folder / "job"
        job.mkdir(exist_ok=True)
        (job / "train.py").write_text(COUNTING)
        (job / "cordee.toml").write_text(
            f'name = "t"\nrun = "{run}"\nvet.max_load = 1000.0\n{toml}\n[need]\nnodes = {self.nodes}\n'
        )
        return prepare(str(job), self.cluster, flags, self.folder / "runs")

    def begin(self, run: str = _STEPS) -> RunFolder:
        """Return a run that was submitted; what is left of it at the end of the test is ended by whoever made the site."""
        prepared = self.job(run)
        prepared.require_valid()
        folder = create_run(prepared)
        submitter_of(folder).submit(folder, plan_of(folder))
        return folder


class QueueSite(BackendSite):
    """A place that a run may have to wait for."""

    @abstractmethod
    def full(self) -> AbstractContextManager[None]:
        """Let nothing start until the block ends."""


def state_of(folder: RunFolder) -> RunState:
    """Return a run's state now."""
    return replay(read_journal(folder.journal), folder.id)


class BackendContract:
    """What any back end does."""

    def reach(self, site: BackendSite, folder: RunFolder, condition: Callable[[RunState], Any]) -> RunState:
        """Return the first state for which a condition is true."""
        seen: list[RunState] = []

        def reached() -> Any:
            seen.append(state_of(folder))
            return condition(seen[-1])

        try:
            wait_until(reached, site.patience_s)
        except TimeoutError:
            words = {path.name: path.read_text(errors="replace")[-500:] for path in folder.control.glob("*.log")}
            raise TimeoutError(f"not within {site.patience_s:.0f} s: {seen[-1]}\n{words}") from None
        return seen[-1]

    def test_its_parts_are_there_and_of_their_kind(self, site: BackendSite) -> None:
        found = backend(site.backend)
        assert isinstance(found, Backend)
        assert found.name == site.backend
        assert issubclass(load(found.submission), Submitter)
        assert issubclass(load(found.allocation), Allocation)
        parts = (found.site, found.examine, found.facts, found.rank_environment)
        assert all(callable(load(part)) for part in parts if part is not None)

    def test_looking_at_it_imports_nothing_that_takes_time(self, site: BackendSite) -> None:
        program = (
            "import sys\nfrom cordee.core.backends import abilities\n"
            f"abilities({site.backend!r})\n"
            "print([name for name in ('pydantic', 'numpy', 'asyncio', 'click') if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_what_nodes_import_of_it_is_within_python_3_9_and_in_the_node_zip(self, site: BackendSite) -> None:
        found = backend(site.backend)
        for part in filter(None, (found.allocation, found.rank_environment)):
            spec = importlib.util.find_spec(part.partition(":")[0])
            assert spec is not None
            assert spec.origin is not None
            ast.parse(Path(spec.origin).read_text(), spec.origin, feature_version=(3, 9))
        folder = create_run(site.job())
        env = {**os.environ, "PYTHONPATH": str(folder.node_zip)}
        command = [sys.executable, "-S", "-c", _CHILD, str(folder.root)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == f"{site.backend} []", done.stderr

    def test_a_run_trains_to_its_end_and_leaves_the_place(self, site: BackendSite) -> None:
        folder = site.begin()
        state = self.reach(site, folder, lambda state: state.ended)
        assert (state.state, state.exit_code) == ("finished", 0), state.text
        assert len([node for node in state.nodes if node.role == "active"]) == site.nodes
        wait_for_gone(site, folder)

    def test_a_program_that_fails_is_a_run_that_fails_and_advice_says_so(self, site: BackendSite) -> None:
        folder = site.begin("python -c 'raise SystemExit(3)'")
        state = self.reach(site, folder, lambda state: state.ended)
        assert state.state == "failed"
        advice = advise(collect_situation(folder))
        assert advice.failed
        assert advice.findings

    def test_a_supervisor_that_dies_is_followed_by_another(self, site: BackendSite) -> None:
        folder = site.begin(_LONG)
        self.reach(site, folder, _trains)
        before = len([event for event in read_journal(folder.journal) if event["event"] == "supervisor_started"])
        os.kill(supervisor_pid(site.there(folder)), signal.SIGKILL)
        state = self.reach(site, folder, lambda state: _supervisors(folder) > before and _trains(state))
        assert (state.failures, state.segments) == ([], 1)
        submitter_of(folder).cancel(folder)
        wait_for_gone(site, folder)

    def test_an_agent_that_dies_is_replaced(self, site: BackendSite) -> None:
        folder = site.begin(_LONG)
        state = self.reach(site, folder, _trains)
        name = state.nodes[0].node
        there = site.there(folder)
        before = living_record(agent_file(there, name))
        os.kill(before["pid"], signal.SIGKILL)
        wait_until(
            lambda: living_record(agent_file(there, name)).get("pid") not in (None, before["pid"]), site.patience_s
        )
        self.reach(site, folder, lambda state: state.state == "running")
        submitter_of(folder).cancel(folder)
        wait_for_gone(site, folder)

    def test_a_run_that_is_asked_to_end_is_cancelled(self, site: BackendSite) -> None:
        folder = site.begin(_LONG)
        self.reach(site, folder, _trains)
        (folder.requests / "cancel-1.json").write_text(json.dumps({"request": "cancel"}))
        assert self.reach(site, folder, lambda state: state.ended).state == "cancelled"

    def test_what_it_does_not_honour_is_named_before_it_runs(self, site: BackendSite) -> None:
        honours = backend(site.backend).abilities.honours
        keys = {"need.account": "a", "need.reservation": "r", "slurm.mpi": "pmix"}
        found = site.job(**keys).findings
        left_out = {finding.text.partition(" ")[0] for finding in found if "has no meaning on" in finding.text}
        assert left_out == {key for key in keys if key not in honours}
        refused = [finding for finding in site.job(launch="srun").findings if "launch = srun" in finding.text]
        assert bool(refused) == ("launch" not in honours)

    def test_what_it_says_of_itself_is_a_profile(self, site: BackendSite) -> None:
        from cordee.job.profile import ClusterProfile

        asked = backend(site.backend).site
        values = load(asked)(os.environ, 30.0) if asked else {"scheduler": site.backend}
        assert ClusterProfile.model_validate(values).scheduler == site.backend

    def test_a_run_that_was_never_submitted_has_advice(self, site: BackendSite) -> None:
        prepared = site.job()
        folder = create_run(prepared)
        advice = advise(collect_situation(folder))
        assert advice.findings
        assert advice.verdict


class QueueContract(BackendContract):
    """What a back end does besides when runs may have to wait for it."""

    def test_it_says_that_it_queues(self, site: QueueSite) -> None:
        assert backend(site.backend).abilities.queues

    def test_a_run_that_waits_has_a_reason_which_advice_tells(self, site: QueueSite) -> None:
        with site.full():
            folder = site.begin()
            wait_until(lambda: submitter_of(folder).standing(folder, age_s=0).state == "waiting", site.patience_s)
            situation = collect_situation(folder)
            assert situation.scheduler.scheduler == site.backend
            assert situation.scheduler.job
            advice = advise(situation)
            assert advice.where == "waiting"
            assert advice.verdict.startswith("it waits because ")
        assert self.reach(site, folder, lambda state: state.ended).state == "finished"


def _trains(state: RunState) -> bool:
    return bool(state.ranks) and all(rank.status == "running" for rank in state.ranks) and bool(state.step)


def _supervisors(folder: RunFolder) -> int:
    return len([event for event in read_journal(folder.journal) if event["event"] == "supervisor_started"])


def supervisor_pid(folder: RunFolder) -> int:
    """Return the pid of the run's supervisor, which runs on this machine."""
    epochs = sorted(
        (folder.control / "epochs").iterdir(), key=lambda path: int(path.name) if path.name.isdigit() else -1
    )
    record = living_record(epochs[-1] / "owner.json")
    if not record:
        raise CordeeError("no supervisor lives", given=folder.id)
    return int(record["pid"])


def wait_for_gone(site: BackendSite, folder: RunFolder) -> None:
    """Return once the place holds nothing of a run."""
    wait_until(lambda: submitter_of(folder).standing(folder, age_s=0).state == "gone", site.patience_s)
