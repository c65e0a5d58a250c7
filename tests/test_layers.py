"""The order of rooms, and the node side kept apart: small, light, and within Python 3.9."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cordee.submit.bundle import node_side_files, write_node_zip

# The order of data: a room imports only from itself and from rooms before it. docs/architecture.md is rendered from this.
LAYERS = (
    ("errors", "node", "one error base, and the only table of exit codes"),
    ("findings", "node", "one Finding for documents, scans, vetting and insight"),
    ("units", "node", "sizes, durations and times"),
    ("wire", "node", "the authenticated framed protocol"),
    ("runs", "both", "run folder, journal, states, block log, logs (node side); sealed series, reader, index (document side)"),
    ("client", "node", "what a training script calls: log, stopping"),
    ("spec", "document", "documents into frozen models, with the origin of every value"),
    ("checkpoint", "node", "complete checkpoints: saved, found, restored"),
    ("plan", "document", "one frozen Plan, the only input of submit"),
    ("node", "node", "the agent, tasks, ranks, checks, samplers"),
    ("insight", "both", "peer statistics (node side); phases and where the time went (document side)"),
    ("supervise", "node", "the supervisor and the keeper"),
    ("submit", "document", "handing a plan to whatever runs it: one small seam"),
    ("report", "document", "text, JSON and HTML, rendered once"),
    ("cli", "document", "thin faces"),
    ("testing", "document", "contract suites and real parts for tests"),
)
NODE_MODULES_OF_SHARED_ROOMS = {
    "runs": {"__init__", "folder", "journal", "snapshot", "state", "blocklog", "logframes"},
    "insight": {"__init__", "peers"},
}
LATE_IN_CLIENT = {("__init__", "runs.reader")}
ROOT = Path(__file__).parents[1] / "src" / "cordee"
ORDER = {room: index for index, (room, _, _) in enumerate(LAYERS)}
SIDE = {room: side for room, side, _ in LAYERS}
ALLOWED_ON_NODE = {"torch", "numpy"}


def modules() -> list[tuple[str, Path]]:
    """Return (dotted name below cordee, path) of every module."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found.append((".".join(parts if parts[-1] != "__init__" else parts[:-1]) or "__init__", path))
    return found


def room_of(name: str) -> str:
    return name.split(".")[0]


def is_node_side(name: str) -> bool:
    room = room_of(name)
    if room == "__init__":
        return True
    if SIDE[room] == "both":
        inner = name.split(".")[1] if "." in name else "__init__"
        return inner in NODE_MODULES_OF_SHARED_ROOMS[room]
    return SIDE[room] == "node"


def imports_of(path: Path) -> list[tuple[str, int, bool]]:
    """Return (module, line, whether at module level and not for types only) of every import."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    top = {id(node) for node in tree.body} | {
        id(inner) for node in tree.body if isinstance(node, (ast.If, ast.Try)) for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            known = [name for name in inner if name.startswith("cordee.") and (ROOT / Path(*name.split(".")[1:])).exists()]
            known += [name for name in inner if (ROOT / Path(*name.split(".")[1:])).with_suffix(".py").exists() and name.startswith("cordee.")]
            found += [(name, node.lineno, id(node) in top) for name in (known or [node.module])]
    return found


def test_every_room_has_its_place_in_the_order():
    rooms = {room_of(name) for name, _ in modules()} - {"__init__"}
    assert rooms <= set(ORDER)


@pytest.mark.parametrize(("name", "path"), modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_a_room_imports_only_from_rooms_before_it(name, path):
    if name == "__init__":
        return
    for imported, line, _ in imports_of(path):
        if imported.startswith("cordee.") and room_of(imported[7:]) in ORDER:
            other = room_of(imported[7:])
            assert ORDER[other] <= ORDER[room_of(name)], f"{path}:{line} imports {imported}, which comes later"


@pytest.mark.parametrize(("name", "path"), [entry for entry in modules() if is_node_side(entry[0])], ids=lambda value: value if isinstance(value, str) else "")
def test_the_node_side_imports_the_standard_library_and_itself(name, path):
    for imported, line, at_top in imports_of(path):
        if imported.startswith("cordee"):
            inner = imported[7:] or "__init__"
            if (name, inner) not in LATE_IN_CLIENT and room_of(inner) in SIDE:
                assert is_node_side(inner), f"{path}:{line} imports {imported} of the document side"
        elif imported.split(".")[0] not in sys.stdlib_module_names:
            assert imported.split(".")[0] in ALLOWED_ON_NODE, f"{path}:{line} imports {imported}"
            assert not at_top, f"{path}:{line} imports {imported} at once; it must be deferred"


def test_the_node_side_is_python_3_9():
    paths = [str(path) for name, path in modules() if is_node_side(name)]
    for path in paths:
        ast.parse(Path(path).read_text(), feature_version=(3, 9))
    vermin = Path(sys.executable).with_name("vermin")
    options = ["--no-tips", "--no-parse-comments", "--violations", "-t=3.9-"]
    done = subprocess.run([str(vermin), *options, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_bundle_is_the_node_side():
    bundled = {path.relative_to(ROOT) for path in node_side_files() if path.suffix == ".py"}
    assert bundled == {path.relative_to(ROOT) for name, path in modules() if is_node_side(name)}


def test_the_node_side_imports_alone_and_lightly(tmp_path):
    target = tmp_path / "node.zip"
    write_node_zip(target)
    with zipfile.ZipFile(target) as archive:
        names = [name[:-3].replace("/", ".") for name in archive.namelist() if name.endswith(".py")]
    names = [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]
    heavy = ["numpy", "torch", "pydantic", "click", "zarr"]
    program = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        f"for name in {names!r}: __import__(name)\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    interpreters = [sys.executable, *filter(None, [shutil.which("python3.9")])]
    for interpreter in interpreters:
        version = subprocess.run([interpreter, "-c", "import sys; print(sys.version_info >= (3, 9))"], capture_output=True, text=True, check=False)
        if version.returncode == 0:
            done = subprocess.run([interpreter, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
            assert done.stdout.strip() == "[]", f"{interpreter}: {done.stderr}"
