"""`cordee init` writes a document that loads, for whatever lies in the folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.job.init import render_toml, write_draft
from cordee.job.inspect_folder import JobDraft, inspect_folder
from cordee.job.load import load_job

PLAIN = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.add_argument("--save-dir", default="saved")
def save(step):
    torch.save({}, f"saved/step-{step}.pt")
if __name__ == "__main__":
    save(1)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my training!"
    path.mkdir()
    return path


def test_a_script_that_saves_and_resumes_is_described(folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN)
    (folder / "requirements.txt").write_text("torch\n")
    (folder / "data").mkdir()
    (folder / "data/a.bin").write_bytes(b"x" * 1500)
    written = write_draft(folder)
    path, notes = written.path, written.notes
    job = load_job(path).job
    assert (job.name, job.run) == ("my-training", ("python", "train.py"))
    assert job.checkpoint is not None
    assert (job.checkpoint.path, job.checkpoint.pattern) == ("saved", "step-*.pt")
    assert job.checkpoint.resume == ("--resume", "{checkpoint}")
    assert "train.py is the script; it uses torch" in notes
    assert "it has the option --resume and saves as step-*.pt" in notes
    assert "data holds 1 file, 1.5 kB" in notes
    assert any("requirements.txt" in note for note in notes)


def test_a_script_that_uses_the_checkpointer_needs_no_pattern(folder: Path) -> None:
    (folder / "main.py").write_text("import cordee\ncordee.checkpointer()\n")
    job = load_job(write_draft(folder).path).job
    assert (job.run, job.checkpoint) == (("python", "main.py"), None)


def test_a_script_that_cannot_go_on_is_told(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\ntorch.save({}, 'x.pt')\n")
    written = write_draft(folder)
    path, notes = written.path, written.notes
    assert load_job(path).job.checkpoint is None
    assert (
        "it saves with torch.save, but no resume command is configured: a restart starts training from scratch" in notes
    )
    assert '# resume = "--resume {checkpoint}"' in path.read_text()


def test_a_resume_switch_without_a_value_is_left_to_the_person(folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN.replace('("--resume")', '("--resume", action="store_true")'))
    written = write_draft(folder)
    path, notes = written.path, written.notes
    assert load_job(path).job.checkpoint is None
    assert any("names no checkpoint: add it to `run`" in note for note in notes)


def test_a_handled_signal_is_used(folder: Path) -> None:
    (folder / "train.py").write_text(PLAIN + "import signal\nsignal.signal(signal.SIGUSR1, print)\n")
    job = load_job(write_draft(folder).path).job
    assert job.checkpoint is not None
    assert job.checkpoint.signal == "USR1"


@pytest.mark.parametrize(
    ("names", "script"),
    [
        (["train.py", "main.py"], "train.py"),
        (["utils.py", "main.py"], "main.py"),
        (["setup.py", "test_x.py", "conftest.py", "my_training_job.py"], "my_training_job.py"),
        (["a.py", "z.py"], "z.py"),
        (["scripts/train.py"], "scripts/train.py"),
        (["with space.py"], "with space.py"),
        (["setup.py"], None),
        ([], None),
    ],
)
def test_the_most_likely_script_is_taken(folder: Path, names: list[str], script: str | None) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("import torch\n" if name == "z.py" else "")
    draft = inspect_folder(folder)
    assert draft.script == script
    (folder / "cordee.toml").write_text(render_toml(draft))
    run = load_job(folder).job.run
    assert run[0] == "python"
    assert script is None or (folder / run[1]).is_file()


@pytest.mark.parametrize("data", [b"print 'two'\n", b"\xff\x00", b"("])
def test_a_broken_script_is_told_and_still_gets_a_document(folder: Path, data: bytes) -> None:
    (folder / "train.py").write_bytes(data)
    written = write_draft(folder)
    path, notes = written.path, written.notes
    assert load_job(path).job.run == ("python", "train.py")
    assert any("cannot be read as Python" in note for note in notes)


def test_a_document_is_never_overwritten(folder: Path) -> None:
    (folder / "cordee.toml").write_text("mine")
    with pytest.raises(DocumentError) as caught:
        write_draft(folder)
    assert (folder / "cordee.toml").read_text() == "mine"
    assert caught.value.given == str(folder / "cordee.toml")
    assert caught.value.allowed == "a folder without a cordee.toml"
    assert "cordee check" in str(caught.value.next)


@pytest.mark.parametrize("text", ["", "\n# nothing\n", "import os\nprint(1)\n"])
def test_a_file_without_a_line_of_a_shell_is_no_batch_script(folder: Path, text: str) -> None:
    (folder / "py.sbatch").write_text(text)
    with pytest.raises(DocumentError) as caught:
        write_draft(folder, folder / "py.sbatch")
    assert (caught.value.text, caught.value.line) == ("is no batch script", 1)
    assert not (folder / "cordee.toml").exists()


@pytest.mark.parametrize("text", ["python train.py\n", "#SBATCH -N 1\nX=1\n", "#!/bin/sh\nX=1\n"])
def test_a_file_with_a_line_of_a_shell_is_a_batch_script(folder: Path, text: str) -> None:
    (folder / "job.sh").write_text(text)
    assert write_draft(folder, folder / "job.sh").source == folder / "job.sh"


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        write_draft(tmp_path / "none")
    assert caught.value.given == str(tmp_path / "none")
    assert caught.value.next == f"mkdir {tmp_path}/none"


def test_a_folder_that_cannot_be_written_is_told() -> None:
    with pytest.raises(DocumentError) as caught:
        write_draft(Path("/proc/self"))
    assert caught.value.text.startswith("cannot write cordee.toml: ")
    assert caught.value.allowed
    assert caught.value.next == "choose another folder"


@pytest.mark.parametrize("gpus", [0, 4])
def test_every_commented_setting_can_be_taken_into_use(folder: Path, gpus: int) -> None:
    draft = JobDraft("a", "train.py", "python train.py", gpus, None, None, None, False, None)
    text = re.sub(r"(?m)^# (?=\[|\w+ = )", "", render_toml(draft))
    (folder / "cordee.toml").write_text(text)
    job = load_job(folder).job
    assert (job.need.spare_nodes, job.need.gpus_per_node, job.need.ranks_per_node) == (1, 4, 2)
    assert job.setup == ("module load cuda",)
    assert job.vet.modules == ("torch",)
    assert job.env == {"OMP_NUM_THREADS": "1"}
    assert job.checkpoint is not None
    assert job.checkpoint.resume == ("--resume", "{checkpoint}")


def test_names_that_toml_must_escape_survive(folder: Path) -> None:
    (folder / 'a"b\\c.py').write_text("")
    path = write_draft(folder).path
    assert load_job(path).job.run == ("python", './a"b\\c.py')
    assert os.listdir(folder)
