"""What is read from a script without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.job.scripts import ScriptOption, read_script

SCRIPT = """
import argparse, signal
import torch.distributed.checkpoint as dcp
from torch import save
import helper
from package.inner import thing

parser = argparse.ArgumentParser()
parser.add_argument("-r", "--resume", default=None)
parser.add_argument("--out_dir", default="results")
parser.add_argument("--fast", action="store_true")
signal.signal(signal.SIGUSR1, print)
for step in range(3):
    dcp.save({}, f"out/step-{step:06d}.pt")
    save({}, "x")
if __name__ == "__main__":
    pass
"""


def test_options_signals_calls_and_texts_are_found(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    script = read_script(tmp_path / "train.py")
    assert script.parsed
    assert script.main_guard
    assert script.options == [
        ScriptOption("--resume"),
        ScriptOption("--out_dir", "results"),
        ScriptOption("--fast", None, False),
    ]
    assert script.option("resume") == ScriptOption("--resume")
    assert script.option("nothing", "out-dir") == ScriptOption("--out_dir", "results")
    assert script.signals == {"USR1"}
    assert script.savers == ["torch.distributed.checkpoint", "torch.save"]
    assert "out/step-*.pt" in script.texts
    assert script.frameworks == ["torch"]
    assert not script.goes_on


@pytest.mark.parametrize(
    "text",
    [
        "import cordee\ncordee.checkpointer()",
        "import cordee as c\nsaver = c.checkpointer(model=None)",
        "from cordee import checkpointer as saver\nsaver()",
        "import os\nos.environ.get('CORDEE_RESUME_FROM')",
    ],
)
def test_a_script_that_goes_on_by_itself_is_known(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    assert read_script(tmp_path / "train.py").goes_on


def test_logging_alone_does_not_go_on(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import cordee\ncordee.log(step=1)\n# cordee.checkpointer()\n")
    assert not read_script(tmp_path / "train.py").goes_on


def test_modules_beside_the_script_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import helper\nfrom package import inner\n")
    (tmp_path / "helper.py").write_text("import helper, train\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/inner.py").write_text("import cordee\ncordee.checkpointer()\n")
    assert read_script(tmp_path / "train.py", tmp_path).goes_on
    assert not read_script(tmp_path / "train.py").goes_on


@pytest.mark.parametrize(
    "data",
    [b"print 'python 2'\n", b"\xff\xfe\x00", b"def f(:\n", b"x = " + b"(" * 50_000, b"x = '\x00'", b"#" * (3 << 20)],
    ids=["python 2", "binary", "broken", "nested", "nul", "huge"],
)
def test_what_is_no_python_has_no_facts(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "train.py").write_bytes(data)
    script = read_script(tmp_path / "train.py")
    assert (script.parsed, script.options) == (False, [])
    assert not read_script(tmp_path / "missing.py").parsed
    assert not read_script(tmp_path).parsed
