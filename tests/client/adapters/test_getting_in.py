"""How the adapters get into a rank without a change, and how they leave everything else as it is."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from .conftest import Rank


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with a W&B that has nothing but what the adapter needs: tests of the way in need no more."""
    folder = tmp_path / "library"
    (folder / "wandb" / "sdk").mkdir(parents=True)
    (folder / "wandb" / "__init__.py").write_text("from wandb.sdk.wandb_run import Run\n")
    (folder / "wandb" / "sdk" / "__init__.py").write_text("")
    (folder / "wandb" / "sdk" / "wandb_run.py").write_text(
        textwrap.dedent('''
        class Run:
            """A run."""

            def __init__(self):
                self.calls = []

            def log(self, data, step=None, commit=None):
                """Take it."""
                self.calls.append((data, step, commit))
                return "taken"
        ''')
    )
    return folder


LOG = "import wandb\nassert wandb.Run().log({'loss': 0.5}, step=3) == 'taken'\n"


def test_a_library_is_adapted_when_the_script_imports_it(rank: Rank, library: Path) -> None:
    done = rank(LOG, library)
    assert (done.code, done.err) == (0, "")
    assert done.values == [(3, {"loss": 0.5})]
    assert done.sources == {"loss": "wandb"}
    assert (done.step, done.dropped) == (3, 0)


def test_a_job_without_adapters_is_left_alone(rank: Rank, library: Path) -> None:
    done = rank(
        LOG + "import sys; print([hook for hook in sys.meta_path if hasattr(hook, 'of_cordee')])", library, adapters=""
    )
    assert (done.code, done.out, done.values, done.attached) == (0, "[]\n", [], False)


def test_only_the_adapters_that_the_job_names_are_used(rank: Rank, library: Path) -> None:
    assert rank(LOG, library, adapters="mlflow").values == []


def test_without_a_channel_nothing_is_touched(rank: Rank, library: Path) -> None:
    done = rank(LOG + "import sys; print('cordee' in sys.modules)", library, CORDEE_CHANNEL="")
    assert (done.code, done.out) == (0, "False\n")


def test_a_script_that_imports_no_such_library_loads_nothing_of_ours(rank: Rank) -> None:
    done = rank("import sys, json; print([name for name in sys.modules if name.startswith('cordee')])")
    assert (done.code, done.out, done.attached) == (0, "[]\n", False)


def test_the_next_sitecustomize_runs_under_its_own_name(rank: Rank, library: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("HERE = __name__, __file__\n")
    done = rank(LOG + "import sitecustomize; print(sitecustomize.HERE)", tmp_path / "site", library)
    assert done.out == f"('sitecustomize', '{tmp_path}/site/sitecustomize.py')\n"
    assert done.values == [(3, {"loss": 0.5})]


def test_a_sitecustomize_that_fails_is_told_as_python_tells_it_and_changes_nothing(
    rank: Rank, library: Path, tmp_path: Path
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("raise RuntimeError('no')\n")
    done = rank(LOG, tmp_path / "site", library)
    assert "Error in sitecustomize" in done.err
    assert "RuntimeError: no" in done.err
    assert (done.code, done.values) == (0, [(3, {"loss": 0.5})])


@pytest.mark.parametrize("flags", ["-S", "-I", "-E"])
def test_where_python_runs_no_sitecustomize_nothing_is_recorded_and_nothing_breaks(
    rank: Rank, library: Path, flags: str
) -> None:
    done = rank(f"import sys; sys.path.insert(0, {str(library)!r})\n{LOG}", flags=flags)
    assert (done.code, done.values) == (0, [])


def test_a_library_that_fails_to_import_fails_as_without_us_and_may_be_tried_again(rank: Rank, library: Path) -> None:
    place = library / "wandb" / "sdk" / "wandb_run.py"
    place.write_text(f"import os\nif 'TRY' not in os.environ: raise ImportError('half installed')\n{place.read_text()}")
    program = "import os\ntry: import wandb\nexcept ImportError as error: print(error)\nos.environ['TRY'] = '1'\n"
    done = rank(program + LOG, library)
    assert (done.code, done.out) == (0, "half installed\n")
    assert done.values == [(3, {"loss": 0.5})]


def test_a_version_that_the_adapter_does_not_know_is_said_once_and_works(rank: Rank, library: Path) -> None:
    (library / "wandb" / "sdk" / "wandb_run.py").write_text("class Run:\n    publish = 1\n")
    done = rank("import wandb; print(wandb.Run.publish)", library)
    assert (done.code, done.out) == (0, "1\n")
    assert "adapter for wandb is left out" in done.err


def test_the_adapted_call_looks_like_the_librarys(rank: Rank, library: Path) -> None:
    program = "import inspect, wandb\nprint(inspect.signature(wandb.Run.log), wandb.Run.log.__doc__)\n"
    program += "print(wandb.sdk.wandb_run.__spec__.loader.__class__.__name__, inspect.getsource(wandb.sdk.wandb_run)[:10].strip())"
    done = rank(program, library)
    assert done.out == "(self, data, step=None, commit=None) Take it.\nSourceFileLoader class Run\n"


def test_an_error_of_the_library_reaches_the_script_and_nothing_is_recorded(rank: Rank, library: Path) -> None:
    program = "import wandb\ntry: wandb.Run().log(nonsense=1)\nexcept TypeError as error: print('TypeError')"
    done = rank(program, library)
    assert (done.code, done.out, done.values) == (0, "TypeError\n", [])


def test_a_reloaded_library_records_once(rank: Rank, library: Path) -> None:
    program = "import importlib, wandb\nimportlib.reload(wandb.sdk.wandb_run)\n"
    done = rank(program + "wandb.sdk.wandb_run.Run().log({'loss': 1}, step=1)", library)
    assert done.values == [(1, {"loss": 1.0})]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_a_rank_do_not_break_and_the_rank_goes_on(
    rank: Rank, library: Path, tmp_path: Path, method: str
) -> None:
    (tmp_path / "work.py").write_text(f"def work():\n    {LOG.replace(chr(10), chr(10) + '    ')}")
    program = f"import sys, multiprocessing as mp\nsys.path.insert(0, {str(tmp_path)!r})\nimport work\nwork.work()\n"
    program += f"if __name__ == '__main__':\n    worker = mp.get_context({method!r}).Process(target=work.work)\n"
    program += "    worker.start(); worker.join(); work.work(); print(worker.exitcode)"
    done = rank(program, library)
    assert (done.out, done.code) == ("0\n", 0)
    assert done.values == [(3, {"loss": 0.5})] * 2
    assert "RuntimeWarning" in done.err, "the worker's values are not recorded, and it is said"


def test_workers_of_an_elastic_launcher_share_no_channel(rank: Rank, library: Path) -> None:
    torchrun = {"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2"}
    assert rank(LOG, library, **torchrun, LOCAL_RANK="1").values == []
