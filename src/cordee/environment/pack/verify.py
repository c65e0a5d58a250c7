"""A pack is tried: mounted in its place, a few packages imported by its own interpreter."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from cordee.environment.document import SQUASHFS_FLAG, Environment, Mount, Root
from cordee.environment.engines import ENGINES, find_engine
from cordee.environment.engines._base import Launch
from cordee.environment.pack.interpreter import Interpreter

ENGINE = "namespace"
_DEADLINE_S = 300.0
_IMPORT = """
import importlib, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
        found[name] = None
    except BaseException as error:
        found[name] = f"{type(error).__name__}: {error}"
print("\\n" + json.dumps(found))
"""


class Verified(NamedTuple):
    """What came of trying.

    Attributes:
        tried: whether the pack was mounted at all.
        text: why not, or what went wrong.
        imports: packages, with what their import said; None: it went well.
    """

    tried: bool
    text: str | None
    imports: dict[str, str | None]

    @property
    def failed(self) -> bool:
        return self.tried and (self.text is not None or any(self.imports.values()))


def largest_packages(interpreter: Interpreter, most: int = 5) -> list[str]:
    """Return the packages with most modules, by what installers recorded."""
    count: Counter[str] = Counter()
    for site in interpreter.site_folders:
        for record in site.glob("*.dist-info/RECORD"):
            with record.open(newline="", errors="replace") as rows:
                for path, *_ in csv.reader(rows):
                    top, _, below = path.partition("/")
                    if below.endswith(".py") and top.isidentifier() and (site / top / "__init__.py").is_file():
                        count[top] += 1
    return [name for name, _ in count.most_common(most)]


def verify(file: Path, at: Path, interpreter: Interpreter) -> Verified:
    """Mount `file` at `at` over this machine's own root, and import its largest packages there.

    An import that fails in the folder that was packed as well is nothing against the pack.
    """
    names = largest_packages(interpreter)
    if ENGINE not in ENGINES:
        return Verified(False, f"there is no engine {ENGINE}", {})
    engine = find_engine(ENGINE)
    environment = Environment(
        name=file.name,
        root=Root("host"),
        mounts=(Mount(str(file), str(at), (SQUASHFS_FLAG,)),),
        workdir="/",
    )
    lacks = engine.missing(environment)
    if lacks:
        return Verified(False, "; ".join(f"{each.text} ({each.next})" for each in lacks), {})
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    inside = (str(at / "bin" / "python"), "-B", "-c", _IMPORT, *names)
    tried, words = _try(engine.argv(environment, Launch(inside, env)), env)
    if tried is None:
        return Verified(True, f"nothing could be run in it: {words}", {})
    failed = [name for name, error in tried.items() if error]
    before = _try([str(interpreter.python), "-B", "-c", _IMPORT, *failed], env)[0] if failed else {}
    return Verified(True, None, {name: error for name, error in tried.items() if not (before or {}).get(name)})


def _try(argv: list[str], env: dict[str, str]) -> tuple[dict[str, str | None] | None, str]:
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    try:
        return json.loads(done.stdout.splitlines()[-1]), ""
    except (ValueError, IndexError):
        return None, (done.stderr or done.stdout).strip()[-500:] or f"exit code {done.returncode}"
