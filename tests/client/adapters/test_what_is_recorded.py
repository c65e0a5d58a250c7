"""Which numbers the adapters record, and under which name: by a library that has nothing but what an adapter needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.wire.facts import SourceFact

from .conftest import Outcome, Rank

LIBRARIES = {
    "torch/utils/tensorboard/writer.py": """
class SummaryWriter:
    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None): pass
    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None): pass
""",
    "wandb/sdk/wandb_run.py": """
class Run:
    _local_step = 0
    def log(self, data, step=None, commit=None):
        if step is None and commit is not False: self._local_step += 1
""",
    "mlflow/tracking/client.py": """
class MlflowClient:
    def log_metric(self, run_id, key, value, timestamp=None, step=None): pass
    def log_batch(self, run_id, metrics=(), params=(), tags=()): pass
""",
    "mlflow/tracking/fluent.py": """
from types import SimpleNamespace as Metric
from mlflow.tracking.client import MlflowClient
def log_metric(key, value, step=None):
    MlflowClient().log_metric("run", key, value, 0, step or 0)
def log_metrics(metrics, step=None):
    MlflowClient().log_batch("run", [Metric(key=key, value=value, step=step or 0) for key, value in metrics.items()])
""",
}
HEAD = """
import cordee
from wandb.sdk.wandb_run import Run
from torch.utils.tensorboard.writer import SummaryWriter
from mlflow.tracking.client import MlflowClient
wandb, board, flow = Run(), SummaryWriter(), MlflowClient()
"""


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    for name, text in LIBRARIES.items():
        place = tmp_path / "libraries" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        for folder in list(place.relative_to(tmp_path / "libraries").parents)[:-1]:
            (tmp_path / "libraries" / folder / "__init__.py").touch()
    return tmp_path / "libraries"


@pytest.fixture
def script(rank: Rank, libraries: Path):
    def run(program: str) -> Outcome:
        done = rank(HEAD + program, libraries)
        assert done.code == 0, done.err
        return done

    return run


def test_a_name_has_one_source_and_the_other_is_told(script) -> None:
    done = script("wandb.log({'loss': 1}, step=1)\nboard.add_scalar('loss', 1, 1)\nboard.add_scalar('lr', 2, 1)")
    assert done.values == [(1, {"loss": 1.0}), (1, {"lr": 2.0})]
    assert done.declared == [
        SourceFact("loss", "wandb"),
        SourceFact("loss", "wandb", "tensorboard"),
        SourceFact("lr", "tensorboard"),
    ]


def test_what_the_script_says_itself_is_kept_before_what_it_gives_to_a_library(script) -> None:
    done = script(
        "for step in range(3):\n    wandb.log({'loss': 1, 'acc': step}, step=step)\n    cordee.log(step=step, loss=2)\n"
    )
    assert done.values == [
        (0, {"loss": 1.0, "acc": 0.0}),
        (0, {"loss": 2.0}),
        (1, {"acc": 1.0}),
        (1, {"loss": 2.0}),
        (2, {"acc": 2.0}),
        (2, {"loss": 2.0}),
    ]
    assert SourceFact("loss", "cordee.log", "wandb") in done.declared


def test_a_library_that_counts_its_own_calls_says_nothing_of_progress(script) -> None:
    done = script("for step in range(5): wandb.log({'loss': step})")
    assert [step for step, _ in done.values] == [0, 1, 2, 3, 4]
    assert done.step is None
    assert done.declared == [SourceFact("loss", "wandb", counted=True)]


def test_calls_of_mlflow_that_name_no_step_are_not_all_at_step_0(script) -> None:
    done = script(
        "from mlflow.tracking.fluent import log_metric, log_metrics\n"
        "log_metric('a', 1); log_metric('a', 2); log_metrics({'b': 3}); log_metric('a', 4, step=0); log_metrics({'b': 5}, 6)"
    )
    assert done.values == [
        (None, {"a": 1.0}),
        (None, {"a": 2.0}),
        (None, {"b": 3.0}),
        (0, {"a": 4.0}),
        (6, {"b": 5.0}),
    ]


def test_progress_is_the_scripts_own_where_it_says_so(script) -> None:
    assert script("board.add_scalar('x', 1, 50); board.add_scalar('x', 1, 40)").step == 50
    assert script("cordee.log(step=3, y=1); board.add_scalar('x', 1, 50)").step == 3


def test_numbers_of_every_kind_are_recorded_and_the_rest_is_left_alone(script) -> None:
    done = script(
        "import numpy, fractions\n"
        "wandb.log({'a': numpy.float32(0.5), 'b': True, 'c': fractions.Fraction(1, 4), 'd': {'e': 1, 'f': {'g': 2}},"
        " 'text': '3', 'none': None, 'image': object(), 'array': numpy.ones(3)}, step=1)"
    )
    assert done.values == [(1, {"a": 0.5, "b": 1.0, "c": 0.25, "d.e": 1.0, "d.f.g": 2.0})]
    assert (done.dropped, done.err) == (0, "")


def test_nan_and_infinity_are_kept(script) -> None:
    ((step, values),) = script("wandb.log({'a': float('nan'), 'b': float('inf')}, step=1)").values
    assert (step, values["a"] != values["a"], values["b"]) == (1, True, float("inf"))


def test_a_number_too_large_is_counted_as_dropped(script) -> None:
    done = script("wandb.log({'a': 10**400, 'b': 1}, step=1)")
    assert (done.values, done.dropped) == ([(1, {"b": 1.0})], 1)


def test_names_that_are_no_names_are_bounded_and_kept_apart(script) -> None:
    done = script(
        "long = 'x' * 10_000\nwandb.log({long + 'a': 1, long + 'b': 2, 'nul\\0byte': 3, '<b>\\x1b[1m': 4}, step=1)\n"
        "cordee.log(step=1, **{'own\\0': 5, 'next': 6})"
    )
    (_, values), (_, own) = done.values
    first, second, *rest = values
    assert (len(first), first[:200], first != second) == (209, "x" * 200, True)
    assert rest == ["nul\ufffdbyte", "<b>\x1b[1m"]
    assert list(values.values()) == [1.0, 2.0, 3.0, 4.0]
    assert own == {"own\ufffd": 5.0, "next": 6.0}
    assert [one.name for one in done.declared] == [first, second, *rest]


def test_every_way_to_write_is_recorded_with_its_step(script) -> None:
    done = script(
        "from types import SimpleNamespace as Metric\n"
        "board.add_scalar(tag='t', scalar_value=1, global_step=5)\n"
        "board.add_scalars('many', {'a': 1, 'b': 2}, 6)\n"
        "board.add_scalar('no-step', 1)\n"
        "flow.log_metric('run', 'm', 3.0, step=7)\n"
        "flow.log_batch('run', [Metric(key='n', value=4, step=8), Metric(key='o', value=5, step=8),"
        " Metric(key='n', value=6, step=9)])\n"
        "flow.log_batch('run', params=['p'])\n"
    )
    assert done.values == [
        (5, {"t": 1.0}),
        (6, {"many/a": 1.0, "many/b": 2.0}),
        (None, {"no-step": 1.0}),
        (7, {"m": 3.0}),
        (8, {"n": 4.0, "o": 5.0}),
        (9, {"n": 6.0}),
    ]


def test_a_step_that_only_int_understands_is_taken(script) -> None:
    assert script("wandb.log({'a': 1}, step=2.0)").values == [(2, {"a": 1.0})]


def test_a_full_ring_drops_and_counts_and_never_waits(script) -> None:
    done = script("for step in range(40_000): wandb.log({'loss': step}, step=step)")
    assert done.dropped > 0
    assert len(done.values) + done.dropped == 40_000
    assert done.sources == {"loss": "wandb"}


def test_threads_may_write_at_once(script) -> None:
    done = script(
        "import threading\n"
        "def work(name):\n    for step in range(300): board.add_scalar(name, step, step)\n"
        "threads = [threading.Thread(target=work, args=(f't{n}',)) for n in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]"
    )
    assert len(done.values) + done.dropped == 1200


def test_more_names_than_are_told_apart_are_all_recorded(script) -> None:
    done = script("for number in range(3000): wandb.log({f'name{number}': number}, step=number)")
    assert (len(done.values), done.dropped) == (3000, 0)
    assert len(done.sources) == 2000


def test_what_a_rank_wrote_before_it_was_killed_is_there(rank: Rank, libraries: Path) -> None:
    program = "import os, threading, time\n"
    program += "threading.Timer(0.2, os.kill, (os.getpid(), 9)).start()\nstep = 0\n"
    program += "while True:\n    wandb.log({'loss': step, 'text': 'x'}, step=step); step += 1; time.sleep(0.0005)"
    done = rank(HEAD + program, libraries)
    assert done.code == -9
    assert [values["loss"] for _, values in done.values] == [float(step) for step, _ in done.values]
    assert [step for step, _ in done.values] == list(range(len(done.values)))
    assert len(done.values) > 1
