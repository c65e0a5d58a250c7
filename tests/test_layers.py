"""The order of rooms, and the node side kept apart: light, standard library first, within Python 3.9."""

from __future__ import annotations

import ast
import os
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cordee.submit.bundle import DOCUMENT_DOORS, node_side_files, write_node_zip

# The order of the platform: a room imports only from itself and from rooms before it; systems and faces stand in no order.
# docs/architecture.md is rendered from this.
LAYERS = (
    ("errors", "node", "one error base, and the only table of exit codes"),
    ("clock", "node", "the clocks that the control plane goes by; a simulation has its own"),
    ("opening", "node", "opening what others may have written: regular, bounded, never waiting, through no link"),
    ("parts", "node", "objects named by a text, imported when they are asked for"),
    ("findings", "node", "one Finding for documents, scans, vetting and insight"),
    ("units", "node", "sizes, durations and times"),
    ("words", "node", "words of sentences: how many, which name was meant, lines of a width"),
    ("stats", "node", "medians, quantiles, and which of several equal things differs from the others"),
    ("slurm", "node", "Slurm's commands: busy told from refused, records parsed"),
    ("starting", "node", "our own modules as processes, which take nothing from the current folder"),
    ("wire", "node", "the authenticated framed protocol"),
    ("hardware", "node", "what a node is made of: memory, GPUs, links, the kernel log"),
    ("squashfs", "document", "one squashfs file made of many places, and read back"),
    (
        "runs",
        "both",
        "run folder, journal, states, block log, logs (node side); sealed series, reader, index (document side)",
    ),
    ("client", "node", "what a training script calls: log, stopping"),
    ("registry", "document", "the systems, and the doors of each"),
    ("backends", "both", "what back ends there are and can do (node side); what is asked of them (document side)"),
    ("spec", "document", "documents into frozen models, with the origin of every value"),
    ("plan", "document", "one frozen Plan, the only input of submit"),
    ("node", "node", "the agent, tasks, ranks, samplers"),
    ("backends.allocation", "node", "where a supervisor finds itself: the seam"),
    ("supervise", "node", "the supervisor and the keeper"),
    ("submit", "document", "handing a plan to whatever runs it: one small seam"),
    ("backends.local", "both", "this machine: a keeper, and processes as nodes"),
    ("backends.slurm", "both", "Slurm: one job for each segment, asked about rarely"),
    ("checks", "node", "questions about a node, each asked in a process that can be killed"),
    (
        "environment",
        "both",
        "from an EDF to one canonical document, images (document side); engines that run commands in it (node side)",
    ),
    ("data", "both", "the packed format and its readers (node side); survey, packing, measuring (document side)"),
    ("checkpoint", "node", "complete checkpoints: saved, found, restored"),
    ("insight", "document", "where the time went, saturation, advice"),
    ("vetting", "node", "from the results of many nodes to a verdict; a vetting without a run"),
    ("fleet", "document", "what vettings have said over time: history, offenders, actions"),
    ("report", "document", "text, JSON and HTML, rendered once"),
    ("web", "document", "the pages and the HTTP interface over run folders"),
    ("testing", "document", "contract suites for every seam, and real parts: a disposable Slurm"),
    ("cli", "document", "thin faces"),
)
NODE_MODULES_OF_SHARED_ROOMS = {
    "runs": {
        "__init__",
        "disk",
        "lane",
        "folder",
        "journal",
        "following",
        "snapshot",
        "state",
        "blocklog",
        "logframes",
        "news",
        "catalogue",
        "recording",
        "plan",
        "checkpoint",
    },
    "backends": {"__init__", "_base"},
    "backends.local": {"__init__", "node"},
    "backends.slurm": {"__init__", "node"},
    "data": {"__init__", "shards", "read"},
    "environment": {"__init__", "document", "choose", "engines", "spank", "node"},
}
# Which storey a module is on: the longest beginning of its name counts. The platform imports no system, no face; a system
# imports no other system, no face.
PLATFORM, FACE, TESTING = "the platform", "a face", "testing"
STOREYS = {
    **dict.fromkeys(
        ("__init__", "errors", "clock", "opening", "parts", "findings", "units", "words", "stats"), PLATFORM
    ),
    **dict.fromkeys(
        ("slurm", "starting", "wire", "hardware", "squashfs", "runs", "client", "registry", "backends", "spec"),
        PLATFORM,
    ),
    **dict.fromkeys(("plan", "node", "supervise", "submit"), PLATFORM),
    **dict.fromkeys(("checks", "vetting", "fleet", "spec.fleet_site", "spec.rules"), "vetting"),
    **{"spec.protocol": "vetting", "spec.protocol_": "vetting"},
    "environment": "environments",
    "data": "data",
    "checkpoint": "checkpoints",
    **{f"insight.{part}": "explain" for part in ("data_account", "loading", "storage")},
    "insight": PLATFORM,
    "insight.saturation": "score",
    "insight.advise": "advise",
    **dict.fromkeys(("report", "web", "cli"), FACE),
    "testing": TESTING,
}
# What still crosses, and why; a line that is not needed any more is a fault, so that this can only shrink.
CROSSINGS = {
    (
        "__init__",
        "checkpoint.save",
    ): "the published `cordee.checkpointer`, for type checkers; found by its name when used",
    ("__init__", "data.read.dataset"): "the published `cordee.dataset`, for type checkers; found by its name when used",
    ("spec.profile", "spec.fleet_site"): "tables of the cluster profile; systems bring tables of the job document only",
    ("submit.situation", "insight.advise.situation"): "a back end's facts for advice; they belong to the back end",
    ("supervise.remarks", "report"): "a child, where it is installed, writes the report that a run leaves",
    ("insight.saturation.validation.conduct", "cli"): "a validation records with the command that users have",
    (
        "backends.slurm.details",
        "insight.advise.situation",
    ): "the words in which advice is told; reasons why a job waits belong to the back end",
    (
        "backends.slurm.details",
        "insight.advise.wording",
    ): "the words in which advice is told; reasons why a job waits belong to the back end",
    (
        "backends.slurm.refusals",
        "insight.advise.wording",
    ): "the words in which advice is told; reasons why a job waits belong to the back end",
    (
        "backends.slurm.waiting",
        "insight.advise.meaning",
    ): "the words in which advice is told; reasons why a job waits belong to the back end",
    (
        "backends.slurm.waiting",
        "insight.advise.situation",
    ): "the words in which advice is told; reasons why a job waits belong to the back end",
    (
        "backends.slurm.waiting",
        "insight.advise.wording",
    ): "the words in which advice is told; reasons why a job waits belong to the back end",
}
# The node side names these of the document side and imports none: they run as children where they are installed,
# and `cordee.open_run` is found by name when a script that reads runs asks for it.
CALLED_BY_NAME = {
    ("__init__", "cordee.runs.reader"),
    ("supervise.remarks", "cordee.runs.seal"),
    ("supervise.remarks", "cordee.report"),
}
DEFERRED_ON_NODE = {"torch", "numpy", "pynvml", "amdsmi", "jax", "obstore", "PIL", "torchvision"}
NEVER_ON_NODE = ("numpy", "torch", "pydantic", "click", "zarr", "xarray", "rich", "jinja2")
IMPORT_BUDGET_S = 0.15
# On a slow or busy machine the budget grows with what these take there: beside them the agent takes 1.3 to 1.7 times as long.
BESIDE = "import asyncio, tarfile, zipfile, http.client, email.message, multiprocessing.managers, logging.config"
TIMES_BESIDE = 2.0

PACKAGE = Path(__file__).parents[1] / "src" / "cordee"
ORDER = {room: index for index, (room, _, _) in enumerate(LAYERS)}
SIDE = {room: side for room, side, _ in LAYERS}


class Import(NamedTuple):
    """One import: the module as written, its line, whether it happens when the importing module is imported."""

    module: str
    line: int
    at_once: bool


def dotted(path: Path) -> str:
    """Return a module's name below cordee: `runs.folder`, `runs` for a package, `__init__` for cordee itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts if parts[-1] != "__init__" else parts[:-1]) or "__init__"


MODULES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(name: str) -> str:
    """Return the room of a module: the implementations of a seam may stand above the seam, as rooms of their own."""
    first, second = (*name.split("."), "")[:2]
    return f"{first}.{second}" if f"{first}.{second}" in ORDER else first


def is_node_side(name: str) -> bool:
    room = room_of(name)
    inner = name[len(room) + 1 :]
    if room == "__init__":
        return True
    if SIDE[room] == "both":
        return (inner.partition(".")[0] or "__init__") in NODE_MODULES_OF_SHARED_ROOMS[room]
    return SIDE[room] == "node" and inner not in DOCUMENT_DOORS


NODE_SIDE = {name: path for name, path in MODULES.items() if is_node_side(name)}


def for_types_only(tree: ast.Module) -> set[int]:
    """Return the ids of the nodes below `if TYPE_CHECKING:`."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    return {id(inner) for block in blocks for statement in block.body for inner in ast.walk(statement)}


def inside_functions(tree: ast.Module) -> set[int]:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {id(inner) for function in functions for inner in ast.walk(function)}


def imports_of(source: str, *, types_too: bool = False) -> Iterator[Import]:
    """Yield every import that can happen at run time; `from cordee.runs import folder` is `cordee.runs.folder`.

    Args:
        types_too: also those that only type checkers see.
    """
    tree = ast.parse(source)
    types = set() if types_too else for_types_only(tree)
    deferred = inside_functions(tree)
    for node in ast.walk(tree):
        if id(node) in types:
            continue
        at_once = id(node) not in deferred
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, at_once)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield Import(inner if inner.removeprefix("cordee.") in MODULES else module, node.lineno, at_once)


def names_of_ours(source: str) -> Iterator[tuple[str, int]]:
    """Yield (text, line) of every string that is the name of one of our modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if text.startswith("cordee.") and text.removeprefix("cordee.") in MODULES:
                yield text, node.lineno


def storey_of(name: str) -> str:
    """Return the storey of a module: the platform, a face, or the name of its system."""
    found = [
        known
        for known in STOREYS
        if f"{name}.".startswith(f"{known}.") or (known[-1] == "_" and name.startswith(known))
    ]
    return STOREYS[max(found, key=len)]


def crossings_of(name: str, source: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield ((module, what it imports), a sentence) for every import, of any kind, that a storey forbids.

    A module that is named by a text, to be run or imported, counts as imported.
    """
    here = storey_of(name)
    if here in (FACE, TESTING):
        return
    for module, line in [
        *((found.module, found.line) for found in imports_of(source, types_too=True)),
        *names_of_ours(source),
    ]:
        inner = module.removeprefix("cordee.")
        if module == inner or inner not in MODULES:
            continue
        there = storey_of(inner)
        if there not in (here, PLATFORM):
            yield (name, inner), f"{name}:{line}: {here} imports {module}, which is of {there}"


def faults_of_order(name: str, source: str) -> Iterator[str]:
    """Yield every import of a later room, of the platform and the faces; systems are for `crossings_of`."""
    for found in imports_of(source):
        if found.module.startswith("."):
            yield f"{name}:{found.line}: a relative import; rooms are named in full"
        elif found.module.startswith("cordee."):
            here, there = room_of(name), room_of(found.module.removeprefix("cordee."))
            ordered = {storey_of(name), storey_of(found.module.removeprefix("cordee."))} <= {PLATFORM, FACE, TESTING}
            if there in ORDER and ORDER[there] > ORDER[here] and ordered:
                yield f"{name}:{found.line}: {here} imports {found.module}, a later room"


def faults_of_side(name: str, source: str) -> Iterator[str]:
    """Yield what a node-side module takes from the document side or from other people at once."""
    for found in imports_of(source):
        top, _, inner = found.module.partition(".")
        if top == "cordee":
            if inner and inner in MODULES and not is_node_side(inner):
                yield f"{name}:{found.line}: imports {found.module} of the document side"
        elif top and top not in sys.stdlib_module_names:
            if top not in DEFERRED_ON_NODE:
                yield f"{name}:{found.line}: imports {top}, which is not in the standard library"
            elif found.at_once:
                yield f"{name}:{found.line}: imports {top} at once; it must be deferred"
    for text, line in names_of_ours(source):
        if not is_node_side(text.removeprefix("cordee.")) and (name, text) not in CALLED_BY_NAME:
            yield f"{name}:{line}: names {text} of the document side"


def test_every_room_has_a_place_in_the_order_and_every_place_a_room():
    assert {room_of(name) for name in MODULES} - {"__init__"} == set(ORDER)


def test_a_room_imports_only_from_rooms_before_it():
    faults = [
        text for name, path in MODULES.items() if name != "__init__" for text in faults_of_order(name, path.read_text())
    ]
    assert faults == []


def test_a_system_is_beside_the_others_and_above_the_platform():
    found = [crossing for name, path in MODULES.items() for crossing in crossings_of(name, path.read_text())]
    assert [text for pair, text in found if pair not in CROSSINGS] == []
    assert set(CROSSINGS) - {pair for pair, _ in found} == set(), "these cross no more: take them out of CROSSINGS"


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("plan.compile", "from cordee.data import look"),
        ("supervise.supervisor", "def late():\n    from cordee.vetting import verdict"),
        (
            "node.agent",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cordee.environment.document import Mount",
        ),
        ("node.preparation", "module_argv('cordee.checks')"),
        ("spec.load", "from cordee.spec.protocol import load_protocol"),
        ("data.look", "from cordee.environment import document"),
        ("insight.saturation.flags", "import cordee.checks.load"),
        ("vetting.verdict", "from cordee.report import html"),
    ],
)
def test_an_import_of_another_system_is_a_fault(name, source):
    assert list(crossings_of(name, source))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("data.examine", "from cordee.plan import model"),
        ("vetting.preparation", "from cordee.checks import checks_for\nfrom cordee.insight.peers import median"),
        ("cli.data.pack", "from cordee.data.pack import packing"),
        ("registry", "BUILT_IN = {'data': 'cordee.data.system:SYSTEM'}"),
    ],
)
def test_what_a_system_may_import_is_no_fault(name, source):
    assert list(crossings_of(name, source)) == []


def test_the_node_side_takes_nothing_from_the_document_side():
    assert [text for name, path in NODE_SIDE.items() for text in faults_of_side(name, path.read_text())] == []


@pytest.mark.parametrize(
    "source",
    [
        "import cordee.report",
        "from cordee.report import html",
        "from cordee.cli.output import print_json",
        "def late():\n    from cordee.submit import local",
        "try:\n    import cordee.testing.runs\nexcept ImportError:\n    pass",
        "from . import folder",
    ],
)
def test_an_import_of_a_later_room_is_a_fault(source):
    assert list(faults_of_order("wire.connection", source))


@pytest.mark.parametrize(
    "source",
    [
        "import cordee.spec.load",
        "from cordee.runs import reader",
        "def late():\n    from cordee.plan.model import Plan",
        "import click",
        "import torch",
        "if True:\n    import numpy",
        "from importlib import import_module\nimport_module('cordee.runs.seal')",
    ],
)
def test_a_node_side_import_of_the_document_side_is_a_fault(source):
    assert list(faults_of_side("node.agent", source))


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nfrom cordee.runs import folder",
        "def late():\n    import torch.distributed as dist",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from cordee.runs.reader import Run",
    ],
)
def test_what_the_node_side_may_import_is_no_fault(source):
    assert list(faults_of_side("node.agent", source)) == []


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


@pytest.mark.parametrize(
    "statement",
    ["import cordee; cordee.log; cordee.stopping", "import cordee.node.agent", "import cordee.supervise.supervisor"],
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
        "from cordee.cli import main\n"
        "try: main(sys.argv[1:])\n"
        f"finally: print('heavy:', [name for name in {never!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert "heavy: []" in done.stdout, done.stdout + done.stderr
