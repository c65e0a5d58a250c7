"""Renders the pages that are made from code: the order of rooms, every command's help, keys and classes, Slurm's reasons, what was measured."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import click
from notebook import write_notebook

from cordee.backends.slurm.limits import explain
from cordee.backends.slurm.reasons import OUTLOOKS, REASONS, STATES
from cordee.core.terminal.group import LazyGroup
from cordee.faces.cli.commands import SECTIONS
from cordee.faces.report.datasets import ReportDataSet, datasets
from cordee.machine.gpus.xid import XIDS
from cordee.systems.explain.node.hardware.kernel import KERNEL_RULES
from cordee.systems.vetting.protocol.schema import check_list, kind_text


def write_all(docs: Path) -> None:
    """Write the rendered pages beside the others, only when they change; the notebook is executed for it."""
    write_notebook(docs)
    root = docs.parent
    pages = {
        "architecture.md": architecture(root),
        "commands.md": commands(),
        "benchmarks.md": benchmarks(root),
        "slurm-reasons.md": slurm_reasons(),
        "vetting-checks.md": vetting_checks(),
        "data-sets.md": data_sets(),
        "hardware-rules.md": hardware_rules(),
        "http-api.md": _beside("http_api").http_api(),
        "document-keys.md": _beside("code_reference").document_keys(),
        "classes.md": _beside("code_reference").classes(),
    }
    for name, text in pages.items():
        path = docs / name
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def _beside(name: str) -> Any:
    """Return the module of this name that lies beside this one."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def architecture(root: Path) -> str:
    """Return the architecture page: the platform's order from tests/test_layers.py, systems from their folders."""
    spec = importlib.util.spec_from_file_location("layers", root / "tests" / "test_layers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    platform = "\n".join(f"| `{room}` | {text} | {_side(module, room)} |" for room, text in module.PLATFORM.items())
    systems = "\n".join(
        f"| `systems/{name}` | {_says(module, name)} | {_doors(module, name)} |" for name in module.SYSTEMS
    )
    faces = "\n".join(f"| `faces/{name}` | {text} |" for name, text in module.FACES.items())
    return f"""# Architecture

Three storeys: a platform whose rooms stand in order, systems beside each other on it, faces in front of them.
`tests/test_layers.py` enforces what follows, and these tables are drawn from it and from the code.

## The platform

A room imports only from itself and from rooms above it. No room of the platform imports a system or a face.

| room | holds | side |
|---|---|---|
{platform}

The node side runs on Python 3.9 with the standard library alone, is copied into each run as one zip, and never imports the
document side. A file's path says which side it is of: rooms of the node side, and every folder `node/` (`cordee/core/sides.py`).

## Systems

A system is one folder, and imports no other system. What several need is platform, or goes by a port.

| system | does | doors it has |
|---|---|---|
{systems}

## Faces

Faces reach systems by their doors: `{"`, `".join(filter(None, module.DOORS))}`.

| face | is |
|---|---|
{faces}

## Where do I put

| what | where |
|---|---|
| a check of nodes | `systems/vetting/node/checks/`, in the folder of what it looks at, and a line in its table |
| a rule or a protocol that is shipped | `systems/vetting/rules/`, `systems/vetting/protocol/` |
| a source of GPU metrics | `telemetry/node/samplers/gpu/`, and a line in its table |
| another scheduler | a folder of `backends/`, with its part that runs on nodes in `node/`, and a line in `core/backends.py` |
| an engine for containers | `systems/environments/node/engines/` |
| a format of data sets | `systems/data/pack/formats/`; what reads it on nodes in `systems/data/node/read/packed/` |
| a key of the job document | `job/document.py`, or the `document` of the system that reads it; one sentence below it says what it means |
| a message between supervisor and agent | `wire/messages.py` |
| a command about runs | `faces/cli/`; one of a system in that system's `cli` |
| a part of a run's report | the `report` of the system that knows it; `faces/report/` is the frame |
| a page, or a number that pages ask for | `faces/web/static/pages/`; the `routes` of the system that knows it, else `faces/web/routes/` |
| what is known of a GPU model | `core/documents/gpu_models.toml`, the only table of it |

## Where rooms and systems meet

Who asks has the port, who answers names itself by a text, `module:object`, that is imported when it is asked. So nothing is
imported against the order.

| port | asked by | answered by |
|---|---|---|
| `core/registry.py`: `System` | the job document, plans, the command line, the web server | each system's `system.py`, or an entry point `cordee.systems` |
| `core/backends.py`: `Backend` | whoever would compare a back end's name | each back end's `__init__.py`, or an entry point `cordee.backends` |
| `job/plan/examination.py`: `Examination` | the plan, of all systems of a job in turn | `examine` of a system |
| `job/submit/_base.py`: `Submitter` | `submit`, `resume`, `cancel`, `runs` | `submission` of a back end |
| `job/conversion.py`: `ScriptReader` | `init` | `scripts` of a back end |
| `control/supervisor/allocation.py`: `Allocation` | the supervisor | `allocation` of a back end |
| `control/agent/rescue.py`: `Rescue` | an agent that no supervisor leads | `claim` of a back end |
| `control/agent/enclosure.py`: `Enclosure` | an agent, around each command | `enclosure` of a plan's `node_parts` |
| `control/agent/companions.py`: `Companion` | an agent, beside the ranks | `companion/NAME` of a plan's `node_parts` |
| `control/supervisor/preparer.py`: `NodePreparer` | the supervisor, before the ranks | `preparation` of a plan's `node_parts` |
| `runs/checkpoint.py`: `CheckpointFinder` | the supervisor | `checkpoints` of a plan's `node_parts` |
| `backends/reasons/meaning.py`: `Reasons` | `advise` | `reasons` of a back end |

## A system that is to come

Say that data sets are to be copied to the nodes' disks before and while ranks read them: staging will be a system.

- Its folder is `systems/staging/`, next to the others: it imports none of them, and none of them imports it.
- Its doors are `__init__.py` (a docstring, what it does on one page), `document.py` (its table of the job document), `examine.py`
  (what ranks must see and find set, its part of the plan, findings), `node/` (what copies, on the nodes' Python), `views.py` (what
  can be shown of it, as data), `cli.py`, `report.py`, `routes.py`, and `system.py`, which names them. It has those that it needs.
- Three files of the platform are what it builds on: `core/registry.py`, whose `System` it is and whose table has a line for it;
  `job/plan/examination.py`, by which the plan asks it; and `control/agent/companions.py`, whose `Companion` runs on each node
  beside the ranks and adds to their environment. A data set's place is told to ranks by the variable that `examine` sets.

`tests/strangers/window` is such a system, whole, from another package; [A system of your own](systems.md) goes through it.

The shape of a run is described in [A run's life](life.md), its files in [The run folder](run-folder.md), and why things are
as they are in [Decisions](decisions/index.md).
"""


def _side(layers: Any, room: str) -> str:
    """Return the side of a room: of the node, of documents, or both."""
    mine = [name for name in layers.MODULES if name == room or name.startswith(f"{room}.")]
    on_node = [name for name in mine if name in layers.NODE_SIDE and layers.NODE_SIDE[name].name != "__init__.py"]
    whole = [name for name in mine if layers.MODULES[name].name != "__init__.py"]
    return "node" if len(on_node) == len(whole) else "both" if on_node else "document"


def _says(layers: Any, system: str) -> str:
    text = ast.get_docstring(ast.parse(layers.MODULES[f"systems.{system}"].read_text())) or ""
    return text.partition("\n")[0].rstrip(".")


def _doors(layers: Any, system: str) -> str:
    return (
        ", ".join(f"`{door}`" for door in layers.DOORS if door and f"systems.{system}.{door}" in layers.MODULES) or "-"
    )


def commands() -> str:
    """Return the page of all commands, from their help texts."""
    group: Any = LazyGroup("cordee", sections=SECTIONS, systems=True)
    parts = [_COMMANDS]
    for name in group.list_commands(click.Context(group)):
        parts += _sections(group.get_command(click.Context(group), name), f"cordee {name}")
    return "\n".join(parts)


_COMMANDS = """# Commands

Every command explains itself with `--help`; these are the same texts. With `--json` a command prints one JSON document on
standard output and everything else on standard error; an error is `{"error": {"kind", "text", "file", "line", "given",
"allowed", "next"}}`.

| exit code | means |
|---|---|
| 0 | done |
| 1 | the thing asked about failed or is bad: a run that failed or was cancelled |
| 2 | the command or a document is wrong |
| 3 | continue without some nodes (`cordee vet`) |
| 4 | vetting left too few nodes |
| 5 | Cordée or its surroundings failed |

`cordee shell RUN -- COMMAND` returns the command's own code.
"""


def _sections(command: click.Command, title: str) -> list[str]:
    """Return the section of a command, and of all below it."""
    sections = [_section(command, title)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            if inner := command.get_command(context, name):
                sections += _sections(inner, f"{title} {name}")
    return sections


def _section(command: click.Command, title: str) -> str:
    context = click.Context(command, info_name=title, max_content_width=100, terminal_width=100)
    return f"## {title}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"


def slurm_reasons() -> str:
    """Return the page of Slurm's reasons and job states, from the tables that `cordee advise` uses."""
    rows = [f"| `{name}` | {reason.meaning} | {reason.next} | {reason.outlook} |" for name, reason in REASONS.items()]
    limits = [
        f"| `{name}` | {reason.meaning} | {reason.next} | {reason.outlook} |"
        for name, reason in ((name, explain(name)) for name in _LIMITS)
    ]
    states = [f"| `{name}` | {reason.meaning} | {reason.next} |" for name, reason in STATES.items()]
    outlooks = "; ".join(f"**{name}** {text}" for name, text in OUTLOOKS.items())
    head = "| code | it waits or ended because | what to do | outlook |\n|---|---|---|---|"
    state_head = "| state | because | what to do |\n|---|---|---|"
    text = "\n".join(
        [
            _REASONS.format(outlooks=outlooks),
            head,
            *rows,
            _LIMITS_HEAD,
            head,
            *limits,
            _STATES_HEAD,
            state_head,
            *states,
            "",
        ]
    )
    return re.sub(r"\{(\w+)\}", lambda name: "JOB" if name[1] == "job" else f"*{name[1]}*", text)


_REASONS = """# Slurm's reasons

What `squeue` shows as the reason of a job, what it means, and what to do. `cordee advise` adds the numbers of the job. A job's
outlook: {outlooks}.
"""
_LIMITS_HEAD = """
## Limits of a QOS or an account

Names such as `QOSMaxCpuPerUserLimit` are read by their parts, so that those below stand for all of their kind.
"""
_STATES_HEAD = "\n## States of a job\n"
_LIMITS = (
    "QOSMaxSubmitJobPerUserLimit",
    "QOSMaxJobsPerUserLimit",
    "QOSMaxWallDurationPerJobLimit",
    "QOSMaxCpuPerUserLimit",
    "QOSMaxGRESPerUser",
    "QOSMaxNodePerJobLimit",
    "QOSMinGRES",
    "QOSGrpNodeLimit",
    "AssocGrpCPUMinutesLimit",
    "AssocGrpCPURunMinutesLimit",
    "AssocGrpGRES",
    "AssocMaxWallDurationPerJobLimit",
    "AssocMaxJobsLimit",
)


def vetting_checks() -> str:
    """Return the page of all checks, from what they declare."""
    found = check_list()
    parts = [_CHECKS]
    for check in found["checks"]:
        limits = [f"Says something about: {check['scope']}."]
        limits += [f"Takes at most {check['deadline_s']:g} s."] if check["deadline_s"] else []
        limits += ["Runs alone on its node."] if check["alone"] else []
        limits += [f"Without a GPU: {check['without_gpu']}"] if check["without_gpu"] != "The same." else []
        parts += [f"## {check['type']}\n", f"{check['title']} {' '.join(limits)}\n", *_parameters(check["parameters"])]
    parts += ["## Every eval\n", *_parameters(found["eval"]), "## A protocol\n", *_parameters(found["protocol"])]
    parts += ["## Classes of vetnode\n", _VETNODE]
    for one in found["vetnode"]:
        parts.append(f"| `{one['type']}` | {', '.join(f'`{name}`' for name in one['becomes'])} |")
    return "\n".join(parts) + "\n"


def _parameters(parameters: list[dict[str, Any]]) -> list[str]:
    if not parameters:
        return ["It takes nothing beside the keys of every eval.\n"]
    rows = [f"| `{one['name']}` | {one['what']} | {kind_text(one)} |" for one in parameters]
    return ["| key | means | takes |\n|---|---|---|", *rows, ""]


_CHECKS = """# Checks

What an eval of a [protocol](vetting.md) may be, rendered from the checks themselves; `cordee vet --list` prints the same. Sizes
are bytes or texts such as `4GiB`, bandwidths bytes per second or texts such as `90GB/s`, durations seconds or texts such as
`2min`.
"""
_VETNODE = """A protocol that was written for vetnode is read as it is; each class becomes checks of ours:

| class | becomes |
|---|---|"""


def hardware_rules() -> str:
    """Return the page of the kernel's lines and XIDs that the watch of a running job knows."""
    kernel = [
        f"| `{one.rule}` | {one.severity} | `{one.example.replace('|', '')}` | {one.next} |" for one in KERNEL_RULES
    ]
    xids = [
        f"| {one.number} | {one.name} | {_FAULT_OF[one.scope]} | {'error' if one.status == 'fail' else 'warn'} | {one.action} |"
        for one in XIDS.values()
    ]
    return "\n".join([_HARDWARE_RULES, *kernel, _XIDS, *xids]) + "\n"


_FAULT_OF = {"user": "mostly the program", "device": "the GPU", "link": "a link"}
_HARDWARE_RULES = """# Rules of the hardware watch

What the [watch of a running job](hardware.md) knows of the kernel log, rendered from its rules.

## Lines of the kernel

| rule | severity | a line that it is about | what to do |
|---|---|---|---|"""
_XIDS = """
## XIDs

Numbers and names are NVIDIA's (docs.nvidia.com/deploy/xid-errors). One that is not here is a warning.

| XID | name | whose fault | severity | what to do |
|---|---|---|---|---|"""


def data_sets() -> str:
    """Return the catalogue page: every data set, field and unit."""
    return "\n".join([_DATA_SETS, *(_data_set(one) for one in datasets())])


_DATA_SETS = """# Data sets

Everything that Cordée leaves for others to read. Programs get the same from
`/api/catalogue` of `cordee serve`; the [notebook](notebook.md) shows how to work with it. Numbers that were not measured are NaN
in arrays and null in JSON, never zero; times are UTC.
"""


def _data_set(one: ReportDataSet) -> str:
    rows = ["| field | type | unit | meaning |", "|---|---|---|---|"] if one.fields else []
    for field in one.fields:
        kind = _cell(f"`{field.kind}`" if field.kind else "")
        rows.append(f"| `{field.name}` | {kind} | {_cell(field.unit)} | {_cell(field.meaning)} |")
    where = f"In `{one.where}`" if "/" in one.where and " " not in one.where else f"In {one.where}"
    return "\n".join(
        [
            f"## {one.title}\n",
            f"`{one.name}`. {one.meaning}\n",
            f"{where}: {one.form}. Read by {one.read}.\n",
            *rows,
            "",
        ]
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def benchmarks(root: Path) -> str:
    """Return the page of benchmarks: what each script measures, and every result that was kept."""
    folder = root / "benchmarks"
    parts = [_BENCHMARKS]
    for script in sorted(folder.glob("*.py")):
        sentence = (ast.get_docstring(ast.parse(script.read_text())) or "").partition("\n")[0]
        parts.append(f"| `benchmarks/{script.name}` | {sentence} |")
    for result in sorted(folder.rglob("*.md"), reverse=True):
        parts.append("\n" + _one_deeper(result.read_text()))
    return "\n".join(parts) + "\n"


_BENCHMARKS = """# Benchmarks

Measurements are scripts in `benchmarks/`, run by hand with `.venv/bin/python benchmarks/NAME.py`. Results are kept with their
date, machine and command. No test depends on a time that was measured here.

| script | measures |
|---|---|"""


def _one_deeper(text: str) -> str:
    """Return a page's text with every heading one level deeper, so that it fits below another page's title."""
    lines, code = [], False
    for line in text.rstrip().splitlines():
        code ^= line.startswith("```")
        lines.append(f"#{line}" if line.startswith("#") and not code else line)
    return "\n".join(lines)
