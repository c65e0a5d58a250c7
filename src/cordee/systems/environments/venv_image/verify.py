"""A pack is tried: mounted in its place, a few packages imported by its own interpreter."""

from __future__ import annotations

import csv
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from cordee.core.errors import EXIT_BAD
from cordee.systems.environments.node.document import SQUASHFS_FLAG, ContainerMount, ContainerRoot, Environment
from cordee.systems.environments.node.engines import find_engine
from cordee.systems.environments.node.engines._base import EXIT_ENGINE, EngineLaunch
from cordee.systems.environments.venv_image.interpreter import Interpreter

ENGINE = "namespace"
_DEADLINE_S = 300.0


class VenvVerified(NamedTuple):
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


def verify(file: Path, at: Path, interpreter: Interpreter) -> VenvVerified:
    """Mount `file` at `at` over this machine's own root, and import its largest packages there.

    An import that fails in the folder that was packed as well is nothing against the pack.
    """
    names = largest_packages(interpreter) or ["sys"]
    if not at.is_dir():
        return VenvVerified(
            False, f"{at} is no folder of this machine, so it can be mounted there only with an image", {}
        )
    engine = find_engine(ENGINE)
    environment = Environment(
        name=file.name,
        root=ContainerRoot("host"),
        mounts=(ContainerMount(str(file), str(at), (SQUASHFS_FLAG,)),),
        workdir="/",
    )
    lacks = engine.missing(environment)
    if lacks:
        return VenvVerified(False, "; ".join(f"{each.text} ({each.next})" for each in lacks), {})
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    imports: dict[str, str | None] = {}
    for package in names:
        line = ("-B", "-c", f"import {package}")
        code, words = _run(engine.argv(environment, EngineLaunch((str(at / "bin" / "python"), *line), env)), env)
        if code == EXIT_ENGINE:
            return VenvVerified(True, f"it could not be mounted: {words}", imports)
        in_folder = code == 0 or _run([str(interpreter.python), *line], env)[0] == 0
        if in_folder:
            imports[package] = words if code else None
    return VenvVerified(True, None, imports)


def _run(argv: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Return the exit code of a command, and the last that it said."""
    try:
        done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    except subprocess.TimeoutExpired:
        return EXIT_BAD, f"it took more than {_DEADLINE_S:.0f} s"
    return done.returncode, (done.stderr or done.stdout).strip()[-500:] or f"exit code {done.returncode}"
