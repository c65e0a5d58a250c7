"""The documentation is true: its documents load, its commands and scripts run, and no key, event or variable is missing.

A page is read as a newcomer would follow it, from top to bottom in a folder with the train.py of docs/quickstart.md:

- `toml` blocks are whole job documents, or cluster profiles when their first line says so; those whose first line is `# NAME.toml`,
  other than cordee.toml, are EDFs; `# ...rules.toml` are rules of scores, `# ...caps.toml` caps of GPUs, `# ...model.toml` sizes of models.
- `yaml` blocks are whole protocols.
- A block whose first line is `# NAME` of a file is written to that file.
- `console` blocks are run: `$ cordee ...` must succeed, and print the lines that are shown, but for what differs each time:
  numbers, ids, processors, places and bars. `...` stands for anything. With UPDATE_DOCS=1 the lines that are shown become those
  that were printed. What `eval` of a command exports holds from there on, so that Slurm's commands can follow.
- `python` blocks without a file name are run when a comment says where, else they must compile.

Comments before a block: `<!-- in FOLDER -->` gives the page a fresh copy of an example from there on,
`<!-- in FOLDER, after COMMAND -->` one in which the command was run before.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import click
import pytest
from pydantic import BaseModel

from cordee.core.terminal.group import LazyGroup
from cordee.faces.cli.commands import COMMANDS
from cordee.job.cluster import load_cluster
from cordee.job.document import Job
from cordee.job.load import load_job
from cordee.job.profile import ClusterProfile
from cordee.systems.environments.edf import resolve
from cordee.systems.score.diagnosis.rules import read_rules
from cordee.systems.score.roofs import read_caps_file
from cordee.systems.sizing.architecture import read_architecture
from cordee.systems.vetting.protocol.document import load_protocol
from cordee.telemetry.node import catalogue
from cordee.testing.htcondor.programs import PACKAGES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RENDERED = {
    DOCS / f"{name}.md"
    for name in (
        "architecture",
        "benchmarks",
        "classes",
        "commands",
        "data-sets",
        "document-keys",
        "hardware-rules",
        "http-api",
        "notebook",
        "slurm-reasons",
        "vetting-checks",
    )
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(set(DOCS.rglob("*.md")) - RENDERED)]
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/cordee.toml"))
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w.-]+\.(?:py|toml|sbatch|yaml))$")
RUN = ("cordee", "python", "sinfo", "srun", "condor_status", "condor_submit", "condor_wait")
EVALUATED = re.compile(r'eval "\$\((.*)\)"$')
NOT_RUN = ("git", "make", "source", "cd", "pip")  # what a person does around it; make's targets are looked up


class Block(NamedTuple):
    """A fenced block: where it stands, the comment before it, and what it holds."""

    page: Path
    line: int
    comment: str
    language: str
    text: str

    @property
    def file_name(self) -> str | None:
        first = self.text.partition("\n")[0]
        match = FILE_NAME.match(first)
        return match.group(1) if match else None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page, line, match.group(1) or "", match.group(2), match.group(3))


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def of(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_a_document_in_the_docs_loads(block, tmp_path, monkeypatch):
    if block.text.startswith("# cluster profile"):
        (tmp_path / "alps.toml").write_text(block.text)
        monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
        assert load_cluster("alps").name == "alps"
    elif block.file_name and block.file_name.endswith("model.toml"):
        (tmp_path / block.file_name).write_text(block.text)
        assert read_architecture(tmp_path / block.file_name).parameters
    elif block.file_name and block.file_name.endswith(("rules.toml", "caps.toml")):
        (tmp_path / block.file_name).write_text(block.text)
        read = read_rules if block.file_name.endswith("rules.toml") else read_caps_file
        assert read(tmp_path / block.file_name)
    elif block.file_name and block.file_name != "cordee.toml":
        for beside in of("toml"):  # what it inherits from
            if beside.page == block.page and beside.file_name:
                (tmp_path / beside.file_name).write_text(beside.text)
        host = {"HOME": "/users/me", "USER": "me", "SCRATCH": "/scratch/me", "PATH": "/usr/bin"}
        found = resolve(block.file_name, cwd=tmp_path, variables=host)
        assert found.environment.name == block.file_name.removesuffix(".toml")
        assert not found.findings
    else:
        (tmp_path / "cordee.toml").write_text(block.text)
        assert load_job(tmp_path).job.name


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_a_protocol_in_the_docs_loads(block, tmp_path):
    (tmp_path / "protocol.yaml").write_text(block.text)
    for beside in of("python"):  # classes that it names
        if beside.page == block.page and beside.file_name:
            (tmp_path / beside.file_name).write_text(beside.text)
    assert load_protocol(tmp_path / "protocol.yaml").name


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda path: path.name)
def test_an_example_loads(folder):
    assert load_job(folder).job.name == folder.name


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_in_the_docs_compiles(block):
    compile(block.text, str(block), "exec")


class Reader:
    """A newcomer who follows a page in a folder of their own."""

    def __init__(self, folder: Path, compiled: Path) -> None:
        self.base, self.folder, self.copies = folder, folder / "mine", 0
        self.folder.mkdir()
        # A short name: there are sockets below it.
        self.cache = Path(tempfile.mkdtemp(prefix="cordee-"))
        shutil.copytree(compiled, self.cache, dirs_exist_ok=True)
        # Fetching HTCondor's programs takes a while, and they hold the path of their folder.
        fetched = PACKAGES.folder.parent
        (self.cache / "cordee").mkdir(exist_ok=True)
        if fetched.is_dir():
            (self.cache / "cordee" / fetched.name).symlink_to(fetched)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(self.cache)}

    def leave(self) -> None:
        """End what a page that failed has left running."""
        for scheduler in ("slurm", "htcondor"):
            if (self.cache / "cordee" / scheduler).exists():
                self.run(["cordee", "testing", scheduler, "down"], "the end of the page")
        shutil.rmtree(self.cache)

    def follow(self, block: Block) -> None:
        where, _, before = block.comment.partition(", after ")
        if where.startswith("in "):
            self.copies += 1
            self.folder = self.base / str(self.copies) / Path(where[3:]).name
            ignored = shutil.ignore_patterns("runs", "checkpoints", "__pycache__")
            shutil.copytree(ROOT / where[3:], self.folder, ignore=ignored)
            if before:
                self.run(shlex.split(before), before)
        if block.file_name:
            whole = not block.file_name.endswith(".sbatch")  # sbatch wants the interpreter in the first line
            text = block.text if whole else block.text.partition("\n")[2]
            (self.folder / block.file_name).write_text(text)
        elif block.language == "python" and where:
            self.run([sys.executable, "-c", block.text], str(block))
        elif block.language == "console":
            self.console(block)

    def console(self, block: Block) -> None:
        for command, *shown in commands_of(block):
            words = shlex.split(command, comments=True)
            evaluated = EVALUATED.match(command)
            if evaluated:
                exports = self.run(shlex.split(evaluated[1]), f"{block}: {command}")
                exports = exports.replace('"$PATH"', self.env["PATH"])
                self.env |= dict(re.findall(r"^export (\w+)=(\S+)$", exports, re.MULTILINE))
            elif words[0] not in NOT_RUN:
                assert words[0] in RUN, f"{block}: {command}"
                output = self.run(words, f"{block}: {command}")
                places = matches(output, shown)
                assert places is not None, f"{block}: {command} printed\n{output}\nthe page shows\n{shown}"
                if os.environ.get("UPDATE_DOCS"):
                    self.update(block.page, shown, [output.splitlines()[at] if at >= 0 else "..." for at in places])

    def update(self, page: Path, shown: list[str], printed: list[str]) -> None:
        """Show what was printed, with this folder as a person's."""
        printed = [line.replace(str(self.folder), "~/my-training").rstrip() for line in printed]
        page.write_text(
            page.read_text().replace("\n".join(shown), "\n".join(printed), 1) if shown else page.read_text()
        )

    def run(self, argv: list[str], what: str) -> str:
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{what}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def commands_of(block: Block) -> list[list[str]]:
    """Return the block's commands, each with the lines shown below it."""
    found: list[list[str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append([line[2:]])
        elif line.strip():
            assert found, f"{block}: output before a command"
            found[-1].append(line)
    return found


# What is another each time, or on another machine: ids of runs, digests, numbers with their units, processors, places, bars.
VARYING = (
    (re.compile(r"[\w.]+(?:-[\w.]+)*-\d{8}T\d{6}Z-[a-z]{4}"), "ID"),
    (re.compile(r"(?<!\w)(?:~|\.{0,2})/[^\s:,;)`']+"), "PLACE"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,64}\b"), "DIGEST"),
    (re.compile(r"[\u2581-\u2595·]+"), "BAR"),
    (re.compile(r"[+-]?\d[\d.,:]*(?:e[+-]?\d+)?(?:T\d+Z?)?"), "0"),
    (re.compile(r"0 (?:ns|us|ms|s|min|h|d|B|[kKMGT]i?B)(?:/s)?\b"), "0 u"),
    (re.compile(r"0 u(?: 0 u)+"), "0 u"),
    (re.compile(r"\b0 x [^,]+, 0 cores\b"), "0 x PROCESSOR, 0 cores"),
    (re.compile(r"\s+"), " "),
)


def masked(line: str, known: int = 0) -> str:
    """Return a line without what is another each time; the first `known` kinds of that stay."""
    for pattern, word in VARYING[known:]:
        line = pattern.sub(word, line)
    return line.strip()


def matches(output: str, shown: list[str]) -> list[int] | None:
    """Return in which line of the output each shown line is, in this order, -1 for a bare `...`; None: one is in none."""
    lines = output.splitlines()
    found, begin = [], 0
    for line in shown:
        if line.strip() == "...":
            found.append(-1)
            continue
        known = 2 if "..." in line else 0  # a part of an id or a place does not look like one
        pattern = re.compile(r".*?".join(re.escape(masked(piece, known)) for piece in line.split("...")))
        place = next((at for at in range(begin, len(lines)) if pattern.search(masked(lines[at], known))), None)
        if place is None:
            return None
        found.append(place)
        begin = place + 1
    return found


# What must pass before anything lands: what newcomers read first, and pages that call the commands between them.
IN_THE_GATE = {
    "README.md",
    "advise.md",
    "data-reading.md",
    "environments.md",
    "from-sbatch.md",
    "job-document.md",
    "life.md",
    "nodes.md",
    "plan.md",
    "quickstart.md",
    "rules.md",
    "scan.md",
    "score-exchange.md",
    "score-regression.md",
    "services.md",
    "testing-slurm.md",
    "topology.md",
    "vetting.md",
}
FOLLOWED = [
    pytest.param(page, marks=[pytest.mark.gate] if page.name in IN_THE_GATE else [], id=page.name)
    for page in PAGES
    if any(block.language == "console" for block in blocks_of(page))
]


@pytest.mark.parametrize("page", FOLLOWED)
@pytest.mark.usefixtures("real")
def test_a_page_can_be_followed_from_top_to_bottom(page, tmp_path, compiled):
    reader = Reader(tmp_path, compiled)
    try:
        reader.follow(next(block for block in of("python") if block.page.name == "quickstart.md"))
        for block in blocks_of(page):
            reader.follow(block)
    finally:
        reader.leave()


def test_what_is_shown_must_be_printed():
    output = "state       finished: well\nnode  local-0\n"
    assert matches(output, ["state finished...", "...", "node local-0"]) == [0, -1, 1]
    assert matches(output, ["...well"]) == [0]
    assert matches(output, ["state failed"]) is None
    assert matches(output, ["node local-0", "state finished"]) is None


def test_numbers_ids_and_places_may_differ_and_words_may_not():
    output = "demo-20261122T124833Z-byzw: finished in 1 min 2 s, 12.5 MB in /tmp/x/runs\n"
    assert matches(output, ["demo-20250101T000000Z-abcd: finished in 300 ms, 1 KB in ~/my-training/runs"]) == [0]
    assert matches(output, ["demo-20250101T000000Z-abcd: failed in 300 ms, 1 KB in ~/my-training/runs"]) is None


def test_make_targets_in_the_docs_exist():
    makefile = (ROOT / "Makefile").read_text()
    lines = [command for block in of("console") for command, *_ in commands_of(block)]
    for command in lines:
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), command


def below(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield a command and all below it, each after the words that call it."""
    yield words, command
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from below(inner, (*words, str(inner.name)))


def test_the_examples_in_help_texts_are_commands():
    group = LazyGroup("cordee", table=COMMANDS, systems=True)
    known = dict(found for name in COMMANDS for found in below(group.get_command(click.Context(group), name), (name,)))
    for words, command in known.items():
        lines = [line.strip() for line in (command.help or "").splitlines() if line.strip().startswith("cordee ")]
        assert lines, f"{' '.join(words)} --help has no example"
        for line in lines:
            given = tuple(shlex.split(line)[1:])
            called = max((one for one in known if given[: len(one)] == one), key=len)
            known[called].make_context(" ".join(called), list(given[len(called) :]))


def keys_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Yield every key of a document by its last name, of nested tables too."""
    for name, field in model.model_fields.items():
        yield field.alias or name
        for inner in models_in(field.annotation):
            yield from keys_of(inner, name)


def models_in(annotation: object) -> list[type[BaseModel]]:
    if (
        isinstance(annotation, type)
        and not isinstance(annotation, types.GenericAlias)
        and issubclass(annotation, BaseModel)
    ):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_in(argument)]


LATER = {"data", "sweep", "steps", "test"}  # tables that are refused by name as a whole


def test_every_key_of_a_job_is_on_its_page():
    page = (ROOT / "docs" / "job-document.md").read_text()
    known = set(Job.model_fields) | {
        key
        for name in set(Job.model_fields) - LATER
        for model in models_in(Job.model_fields[name].annotation)
        for key in keys_of(model)
    }
    assert [key for key in sorted(known) if not re.search(rf"\b{key}\b", page)] == []


def test_every_key_of_a_profile_is_on_its_page():
    page = (ROOT / "docs" / "clusters.md").read_text()
    assert [key for key in sorted({*keys_of(ClusterProfile)}) if not re.search(rf"\b{key}\b", page)] == []


def test_every_variable_of_a_rank_is_on_its_page():
    page = (ROOT / "docs" / "client-api.md").read_text()
    source = ast.parse((ROOT / "src" / "cordee" / "control" / "agent" / "ranks" / "environment.py").read_text())
    names = {word.arg for node in ast.walk(source) if isinstance(node, ast.Call) for word in node.keywords if word.arg}
    names |= {node.value for node in ast.walk(source) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    ours = {name for name in names if re.fullmatch(r"CORDEE_[A-Z_]+", name)} - {"CORDEE_TASK"}
    theirs = {name for name in names if re.fullmatch(r"(JAX|MASTER|LOCAL|GROUP|WORLD)_[A-Z_]+|TF_CONFIG|RANK", name)}
    assert len(ours) >= 8
    assert [name for name in sorted(ours | theirs) if f"`{name}`" not in page] == []


def test_every_metric_is_on_its_page():
    page = (ROOT / "docs" / "results.md").read_text()
    names = [metric.name for group in ("node", "rank") for metric in catalogue.GROUPS[group]]
    assert len(names) >= 24
    assert [name for name in names if f"`{name}`" not in page] == []


def test_links_between_files_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert page.parent / target in RENDERED or (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_file_and_class_that_the_architecture_page_sends_a_reader_to_is_there():
    program = "import sys, pathlib, render; print(render.architecture(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", program, str(ROOT)]
    page = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True, check=True).stdout
    package = ROOT / "src" / "cordee"
    named = re.findall(r"^\| `([\w/]+\.py)`: `(\w+)`", page, re.MULTILINE)
    assert len(named) > 8
    assert [path for path, name in named if f"class {name}" not in (package / path).read_text()] == []
    places = re.findall(
        r"`((?:core|machine|wire|runs|telemetry|client|job|control|backends|systems|faces)/[\w/.]*)`", page
    )
    assert [place for place in places if not (package / place).exists()] == ["systems/staging/"]


@pytest.mark.usefixtures("real")
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(ROOT / "docs"), str(tmp_path / "html")]
    done = subprocess.run([*command, "-d", str(tmp_path / "trees")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = ("architecture", "commands", "notebook", "data-sets")
    pages = {name: (tmp_path / "html" / f"{name}.html").read_text() for name in names}
    assert "systems/vetting" in pages["architecture"]
    assert all(f"cordee {name}" in pages["commands"] for name in COMMANDS)
    assert "4 ranks on 2 nodes" in pages["notebook"]
    assert "gpu_sm_ratio" in pages["data-sets"]
