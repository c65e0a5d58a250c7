"""The documentation is true: its job documents load, its commands run, its code runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.spec.load import load_job

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for kind, text in FENCE.findall(page.read_text()):
            if kind == language:
                found.append((page.name, text))
    return found


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_a_job_document_in_the_docs_loads(page, text, tmp_path):
    (tmp_path / "cordee.toml").write_text(text)
    assert load_job(tmp_path).job.name


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_in_the_docs_is_python(page, text):
    compile(text, page, "exec")


@pytest.mark.slow
def test_the_five_minutes_work(tmp_path):
    page = (ROOT / "docs" / "quickstart.md").read_text()
    (tmp_path / "train.py").write_text(next(text for kind, text in FENCE.findall(page) if kind == "python"))
    lines = [line[2:] for kind, text in FENCE.findall(page) if kind == "console" for line in text.splitlines()]
    assert len(lines) >= 6
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "cordee"
        done = subprocess.run(
            [sys.executable, "-m", "cordee.cli", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
