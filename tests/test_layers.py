"""Three storeys: a platform in order, systems beside each other, faces in front; and the node side kept apart.

The platform imports no system, a system imports no other system and no face, faces reach systems through their doors.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import os
import resource
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cordee.core import sides
from cordee.job.submit.bundle import node_side_files, write_node_zip

# The order of the platform: a room imports only from itself and from rooms before it. docs/architecture.md is drawn from this.
PLATFORM = {
    "core": "errors, findings, units, words, statistics; the kits of documents, drawing, commands and serving",
    "machine": "what one machine is: processes, mounts, control groups, links, GPUs; tasks and what they say",
    "wire": "the authenticated framed protocol, every message as a type; the channel of a training script",
    "runs": "the run folder: journal, state, plan, logs, index",
    "telemetry": "what is measured: samplers and recorder (node side); sealed series, reader, views, what is shown of a run (document side)",
    "client": "what a training script calls: log, place, stopping; adapters of other libraries",
    "job": "the job document, the cluster's profile, one frozen plan, and a run made of it",
    "control": "the supervisor, the agents, how they launch tasks, the keeper",
    "backends": "whatever runs jobs: this machine, Slurm",
}
FACES = {
    "cli": "the command line: a lazy table of commands",
    "report": "what is known of a run, as text, JSON and HTML, rendered once",
    "web": "the pages and the HTTP interface over run folders",
}
PUBLISHED = ("checks", "cli", "__main__")  # thin names of what lies deeper
TESTING = "testing"
# What of a system faces may import.
DOORS = ("", "cli", "document", "examine", "report", "routes", "system", "views")
# The node side names these of the document side and imports none: they run as children where they are installed.
CALLED_BY_NAME = {
    ("__init__", "cordee.telemetry.store.reader"),
    ("control.supervisor.closing_findings", "cordee.telemetry.store.seal"),
    ("control.supervisor.closing_findings", "cordee.cli"),
    ("systems.trials.node.study", "cordee.systems.trials.sampler"),
    ("systems.trials.node.study", "cordee.systems.trials.tracker"),
    ("systems.explain.node.hang.watch", "cordee.systems.explain.hang_report"),
    ("systems.rules.node.watch", "cordee.systems.rules.counted"),
}
ENTRY_POINTS = {"cordee.backends", "cordee.systems"}  # groups of them, which are no modules
DEFERRED_ON_NODE = {
    "torch",
    "numpy",
    "pynvml",
    "amdsmi",
    "jax",
    "obstore",
    "PIL",
    "torchvision",
    "joblib",
    "cloudpickle",
}
NEVER_ON_NODE = ("numpy", "torch", "pydantic", "click", "zarr", "xarray", "rich", "jinja2")
IMPORT_BUDGET_S = 0.15
# On a slow or busy machine the budget grows with what these take there: the agent takes 1.3 to 2.0 times as long as they.
BESIDE = "import asyncio, tarfile, zipfile, http.client, email.message, multiprocessing.managers, logging.config"
TIMES_BESIDE = 2.5

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "cordee"
ORDER = list(PLATFORM)


class Import(NamedTuple):
    """One import: the module as written, its line, whether it happens when the importing module is imported, and for types only."""

    module: str
    line: int
    at_once: bool
    for_types: bool


def dotted(path: Path) -> str:
    """Return a module's name below cordee: `runs.folder`, `runs` for a package, `__init__` for cordee itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts if parts[-1] != "__init__" else parts[:-1]) or "__init__"


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}
NODE_SIDE = {dotted(path): path for path in sides.node_side_files(PACKAGE)}
SYSTEMS = sorted({name.split(".")[1] for name in MODULES if name.startswith("systems.")})


def is_node_side(name: str) -> bool:
    return name in NODE_SIDE


@functools.cache
def named_in(source: str) -> tuple[list[Import], list[tuple[str, int]]]:
    """Return every import, and (text, line) of every string that is the name of one of our modules.

    `from cordee.runs import folder` is an import of `cordee.runs.folder`.
    """
    imports, texts = [], []
    waiting: list[tuple[ast.AST, bool, bool]] = [(ast.parse(source), True, False)]
    while waiting:
        node, at_once, for_types = waiting.pop()
        if isinstance(node, ast.Import):
            imports += [Import(alias.name, node.lineno, at_once, for_types) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                known = inner.removeprefix("cordee.") in MODULES
                imports.append(Import(inner if known else module, node.lineno, at_once, for_types))
        elif isinstance(node, ast.Constant):
            text = node.value
            if isinstance(text, str) and text.startswith("cordee.") and text not in ENTRY_POINTS:
                texts += [(text, node.lineno)] if text.removeprefix("cordee.") in MODULES else []
        at_once = at_once and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        inside = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        bodies = {id(one) for one in node.body} if inside else set()
        waiting += [(one, at_once, for_types or id(one) in bodies) for one in ast.iter_child_nodes(node)]
    return imports, texts


def storey(name: str) -> tuple[str, str]:
    """Return (storey, room) of a module: `("platform", "runs")`, `("system", "data")`, `("face", "web")`."""
    first, second = (*name.split("."), "", "")[:2]
    if first in PLATFORM:
        return "platform", first
    if first == "systems" and second:
        return "system", second
    if first == "faces" and second:
        return "face", second
    return ("testing", "") if first == TESTING else ("free", "")


def why_not(here: str, there: str) -> str:
    """Return why one module must not import another, empty when it may."""
    (upper, room), (lower, other) = storey(here), storey(there)
    if upper in ("free", "testing") or lower == "free" or (upper, room) == (lower, other):
        return ""
    if upper == "platform" and lower == "platform":
        return "" if ORDER.index(other) < ORDER.index(room) else f"{other} is a later room of the platform than {room}"
    if lower == "platform":
        return ""
    if upper == "platform":
        return f"the platform imports no {lower}: ask by a port of core, or have the system register what it brings"
    if upper == "system":
        return f"the system {room} imports no {lower}: what both need belongs to the platform, the rest goes by a port"
    if lower == "system":
        door = there.split(".")[2] if there.count(".") > 1 else ""
        return (
            "" if door in DOORS else f"a face enters {other} by a door ({', '.join(filter(None, DOORS))}), not {door}"
        )
    return "" if lower == "face" or there == f"{TESTING}.cli" else "faces take nothing of testing but its command"


def crossings_of(name: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield (what is imported, a sentence) for every import, of any kind, that a rule of the storeys forbids.

    A module that is named by a text, to be run or imported, counts as imported.
    """
    imports, texts = named_in(source)
    for module, line in [*((found.module, found.line) for found in imports), *texts]:
        inner = module.removeprefix("cordee.")
        if module.startswith("."):
            yield module, f"{name}:{line}: a relative import; modules are named in full"
        elif module != inner and inner in MODULES and (why := why_not(name, inner)):
            yield inner, f"{name}:{line} imports {inner}: {why}"


def faults_of_side(name: str, source: str) -> Iterator[str]:
    """Yield what a node-side module takes from the document side or from other people at once."""
    imports, texts = named_in(source)
    for found in imports:
        if found.for_types:
            continue
        top, _, inner = found.module.partition(".")
        if top == "cordee":
            if inner and inner in MODULES and not is_node_side(inner):
                yield f"{name}:{found.line}: imports {found.module} of the document side"
        elif top and top not in sys.stdlib_module_names:
            if top not in DEFERRED_ON_NODE:
                yield f"{name}:{found.line}: imports {top}, which is not in the standard library"
            elif found.at_once:
                yield f"{name}:{found.line}: imports {top} at once; it must be deferred"
    for text, line in texts:
        if not is_node_side(text.removeprefix("cordee.")) and (name, text) not in CALLED_BY_NAME:
            yield f"{name}:{line}: names {text} of the document side"


def test_every_module_stands_in_a_room_a_system_or_a_face():
    rooms = {name.partition(".")[0] for name in MODULES} - {"__init__"}
    assert rooms == {*PLATFORM, "systems", "faces", TESTING, *PUBLISHED}
    assert {name.split(".")[1] for name in MODULES if name.startswith("faces.")} == set(FACES)
    assert len(PLATFORM) <= 9


def test_the_platform_carries_systems_that_stand_beside_each_other_and_faces_stand_in_front():
    assert [text for name, path in MODULES.items() for _, text in crossings_of(name, path.read_text())] == []


def test_a_package_of_a_system_is_a_docstring():
    for system in SYSTEMS:
        assert len(ast.parse(MODULES[f"systems.{system}"].read_text()).body) == 1, system


def test_the_node_side_takes_nothing_from_the_document_side():
    assert [text for name, path in NODE_SIDE.items() for text in faults_of_side(name, path.read_text())] == []


def test_style_is_told_of_the_node_side_by_the_same_paths():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    told = (settings["per-file-target-version"], settings["lint"]["per-file-ignores"])
    for path in NODE_SIDE.values():
        for patterns in told:
            named = [one for one in patterns if fits(str(path.relative_to(ROOT)), one)]
            assert named, f"{path.relative_to(ROOT)} is of the node side, and pyproject.toml does not say so"


def fits(path: str, pattern: str) -> bool:
    """Return whether a pattern of ruff, with one pair of braces at most, names a path."""
    before, _, rest = pattern.partition("{")
    inner, _, after = rest.partition("}")
    return any(fnmatch.fnmatch(path, f"{before}{one}{after}".replace("**", "*")) for one in inner.split(","))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("wire.connection", "import cordee.runs.folder"),
        ("wire.connection", "from cordee.runs import folder"),
        ("core.errors", "def late():\n    from cordee.backends.local import submitter"),
        ("job.load", "from cordee.systems.vetting.node.judge import verdict"),
        (
            "control.supervisor.decisions.run",
            "try:\n    import cordee.testing.slurm\nexcept ImportError:\n    pass",
        ),
        ("systems.data.account", "from cordee.systems.score import load"),
        ("systems.score.load", "from cordee.faces.report import html"),
        (
            "control.agent.agent",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cordee.systems.data import listing",
        ),
        ("control.agent.agent", "module_argv('cordee.systems.score.views')"),
        ("faces.web.app", "from cordee.systems.score import load"),
        ("faces.cli.commands", "from cordee.testing import images"),
        ("core.draw.charts", "from cordee.systems.score.report import figures"),
        ("wire.connection", "from . import folder"),
    ],
)
def test_an_import_that_a_storey_forbids_is_a_fault(name, source):
    assert list(crossings_of(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("runs.index", "from cordee.core.errors import CordeeError\nfrom cordee.runs import folder"),
        ("systems.data.account", "from cordee.runs import state\nfrom cordee.systems.data import listing"),
        ("faces.cli.run", "import cordee.systems.advise.cli\nfrom cordee.faces.report import html"),
        ("faces.web.app", "from cordee.systems.score.views import Scores\nfrom cordee.core.web import tokens"),
        ("faces.cli.commands", "TESTING = 'cordee.testing.cli'"),
        ("testing.checks", "from cordee.systems.vetting.node.judge import verdict"),
    ],
)
def test_what_a_storey_allows_is_no_fault(name, source):
    assert list(crossings_of(name, source)) == []


@pytest.mark.parametrize(
    "source",
    [
        "import cordee.job.load",
        "from cordee.telemetry.store import reader",
        "def late():\n    from cordee.job.plan.model import Plan",
        "import click",
        "import torch",
        "if True:\n    import numpy",
        "from importlib import import_module\nimport_module('cordee.telemetry.store.seal')",
    ],
)
def test_a_node_side_import_of_the_document_side_is_a_fault(source):
    assert list(faults_of_side("control.agent.agent", source))


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nfrom cordee.runs import folder",
        "def late():\n    import torch.distributed as dist",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cordee.telemetry.store.reader import Run",
    ],
)
def test_what_the_node_side_may_import_is_no_fault(source):
    assert list(faults_of_side("control.agent.agent", source)) == []


def needs_newer_than_3_9(*paths: Path) -> str:
    """Return what needs a newer Python than 3.9, by vermin; empty when nothing does."""
    options = ["--no-tips", "--no-parse-comments", "--violations", "-t=3.9-"]
    command = [sys.executable, "-c", "from vermin import main; main()", *options, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Minimum required versions" in done.stdout, done.stderr
    return done.stdout if done.returncode else ""


def test_the_node_side_is_python_3_9_in_syntax_and_library():
    for path in NODE_SIDE.values():
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))
    assert needs_newer_than_3_9(*NODE_SIDE.values()) == ""


@pytest.mark.parametrize("source", ["match x:\n    case 1: pass", "from datetime import UTC", "import tomllib"])
def test_newer_syntax_and_library_are_found(source, tmp_path):
    (tmp_path / "newer.py").write_text(source)
    assert "Minimum required versions: 3.1" in needs_newer_than_3_9(tmp_path / "newer.py")


def test_types_are_not_evaluated_on_the_node_side():
    for name, path in NODE_SIDE.items():
        if path.read_text().strip() and any(
            isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(path.read_text()))
        ):
            assert "from __future__ import annotations" in path.read_text(), name


def test_the_bundle_is_the_node_side():
    bundled = {path for path in node_side_files() if path.suffix == ".py"}
    assert bundled == set(NODE_SIDE.values())


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The node side as it goes into a run folder."""
    target = tmp_path_factory.mktemp("bundle") / "node.zip"
    write_node_zip(target)
    return target


def interpreters() -> list[str]:
    """Return this Python, and every Python 3.9 of this machine that starts."""
    managed = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [shutil.which("python3.9"), *map(str, managed.glob("3.9.*/bin/python"))]
    ask = "import sys; sys.exit(sys.version_info[:2] != (3, 9))"
    old = [
        name for name in candidates if name and not subprocess.run([name, "-c", ask], capture_output=True).returncode
    ]
    return [sys.executable, *old]


def test_the_node_side_imports_alone_and_without_weight(bundle):
    with zipfile.ZipFile(bundle) as archive:
        names = [name[:-3].replace("/", ".") for name in archive.namelist() if name.endswith(".py")]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    program = (
        f"import sys; sys.path.insert(0, {str(bundle)!r})\n"
        f"for name in {names!r}: __import__(name)\n"
        f"print([name for name in {NEVER_ON_NODE!r} if name in sys.modules])"
    )
    for interpreter in interpreters():
        done = subprocess.run([interpreter, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "[]", f"{interpreter}: {done.stdout}{done.stderr}"


def cpu_s(program: str) -> float:
    """Return the CPU seconds that a bare Python takes for a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "statement",
    [
        "import cordee; cordee.log; cordee.stopping",
        "import cordee.control.agent.agent",
        "import cordee.control.supervisor.supervisor",
    ],
)
def test_the_node_side_imports_within_its_budget(statement, bundle):
    program = f"import sys; sys.path.insert(0, {str(bundle)!r}); {statement}"
    bare = quickest = beside = float("inf")
    for number in range(20):  # a busy machine makes CPU time longer, never shorter
        bare, quickest = min(bare, cpu_s("pass")), min(quickest, cpu_s(program))
        if number >= 2 and quickest - bare <= IMPORT_BUDGET_S:
            return
        beside = min(beside, cpu_s(BESIDE))
    assert quickest - bare <= max(IMPORT_BUDGET_S, TIMES_BESIDE * (beside - bare))


@pytest.mark.parametrize(
    ("arguments", "never"),
    [
        (["--help"], ("pydantic", *NEVER_ON_NODE[:2], "zarr", "xarray", "rich", "jinja2", "asyncio")),
        (["check", "--help"], ("numpy", "torch", "zarr", "xarray", "rich", "jinja2")),
    ],
)
def test_a_command_imports_only_what_it_needs(arguments, never):
    program = (
        "import sys\n"
        "from cordee.faces.cli import main\n"
        "try: main(sys.argv[1:])\n"
        f"finally: print('heavy:', [name for name in {never!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert "heavy: []" in done.stdout, done.stdout + done.stderr
