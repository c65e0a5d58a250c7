"""Executes the notebook against a run that it makes, and renders it, code and outputs, as a page.

The notebook is kept without outputs. What was rendered lies beside the pages and is rendered again when the notebook, or what it
runs, has changed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NAME = "look-at-a-run.ipynb"
PAGE, PICTURES = "notebook.md", "notebook-pictures"
_PATIENCE_S = 300


def write_notebook(docs: Path) -> None:
    """Write `notebook.md` and its pictures, unless they are there as they would be written again.

    Raises:
        RuntimeError: the run that the notebook looks at, or one of its cells, failed.
    """
    sources = [
        docs / "notebooks" / NAME,
        docs / "notebooks" / "train.py",
        docs / "notebooks" / "cordee.toml",
        Path(__file__),
    ]
    first = f"<!-- {hashlib.sha256(b''.join(path.read_bytes() for path in sources)).hexdigest()} -->\n"
    page = docs / PAGE
    if page.is_file() and page.read_text().startswith(first):
        return
    with tempfile.TemporaryDirectory(prefix="cordee-notebook-") as folder:
        executed = execute(docs / "notebooks", Path(folder))
    shutil.rmtree(docs / PICTURES, ignore_errors=True)
    (docs / PICTURES).mkdir()
    page.write_text(first + render(executed, docs / PICTURES))


def execute(source: Path, folder: Path) -> Any:
    """Return the notebook with its outputs, executed in a folder with a run of the training beside it.

    Raises:
        RuntimeError: the run or a cell failed; says how.
    """
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    for name in ("train.py", "cordee.toml"):
        shutil.copy(source / name, folder)
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "CORDEE_RUNS": str(folder / "runs")}
    command = [sys.executable, "-m", "cordee.faces.cli", "run"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S)
    if done.returncode:
        raise RuntimeError(f"the notebook's run failed: {done.stdout}{done.stderr}")
    notebook = nbformat.read(source / NAME, as_version=4)
    kernel = {**environment, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    kernel |= {name: str(folder / "jupyter") for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    saved = dict(os.environ)
    os.environ.update(kernel)
    try:
        config = Config({"KernelManager": {"transport": "ipc", "ip": str(folder / "kernel")}})
        resources = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, config=config, timeout=_PATIENCE_S, resources=resources).execute()
    finally:
        os.environ.clear()
        os.environ.update(saved)
    return notebook


def render(notebook: Any, pictures: Path) -> str:
    """Return an executed notebook as Markdown: cells, then what they printed, showed and drew; pictures go into a folder."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.replace("](../", "]("))
            continue
        parts.append(f"```python\n{cell.source}\n```")
        printed = "".join(
            output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout"
        )
        if printed:
            parts.append(_text(printed))
        for output in cell.outputs:
            parts += [_shown(output.data, pictures)] if output.output_type in ("execute_result", "display_data") else []
    parts.insert(1, f"Download it: {{download}}`{NAME} <notebooks/{NAME}>`. Below are its cells with what they gave.")
    return "\n\n".join(parts) + "\n"


def _shown(data: Any, pictures: Path) -> str:
    if "image/png" in data:
        content = base64.b64decode(data["image/png"])
        name = f"{len(list(pictures.iterdir())) + 1}.png"
        (pictures / name).write_bytes(content)
        return f"![drawn by the cell above]({pictures.name}/{name})"
    return _text(data["text/plain"])


def _text(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"
