"""What HTCondor is asked for: the submit file of a run, and the few lines of shell that find a Python there."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cordee.backends.htcondor.node.ads import CODE, EXIT_AGAIN, LAST_WORDS, LAST_WORDS_HOME, LUGGAGE, NODE_SIDE, OUTPUTS
from cordee.core.units import parse_size
from cordee.machine.processes.module_command import START
from cordee.runs.folder import RunFolder

DESCRIPTION, PROGRAM, EVENTS = "htcondor.sub", "htcondor.sh", "htcondor.log"
# In the run's `submit/`, the image of a container: HTCondor knows a file of one by this ending alone.
IMAGE = "image.sif"
_ON_MACHINES = "/cvmfs/"  # a file system that machines have, and that nothing has to be brought from
# In the `submit/` of a parent: what its children were submitted by together.
TOGETHER = "htcondor-jobs-{number}.sub"
# By which jobs are told from all others: the run's id, and the file of those that were submitted together.
RUN_ATTRIBUTE, TOGETHER_ATTRIBUTE = "CordeeRun", "CordeeJobs"
# Without `max_idle`: so many jobs of one submission wait in the queue at most.
_MOST_IDLE = 1000
_ROWS = "queue run from (\n"
EXIT_NO_PYTHON = 70
_MIB = 1 << 20
# Without [need] disk: for what arrives, what is saved and what the script writes.
_LEAST_DISK = 1 << 30
_DEFAULT_MEMORY = 2 << 30
_MORE_VACATE_S = 30
# How long a machine may be silent before its job is started elsewhere.
_LEASE_S = 900

_PROGRAM = """\
#!/bin/sh
# Run {run} of Cordée, as it begins on a machine of the pool: in an empty folder, with what HTCondor brought there.
run={run}
start={start}
exec 2>&1
# All that is to come home must be there, whatever happens.
for name in {outputs}; do mkdir -p "$run/$name"; done
: >{last_words}
PATH={path}; export PATH
for python in {pythons}; do
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break
  python=
done
if [ -z "$python" ]; then
  echo "cordee: no Python of version 3.9 or later on $(uname -n); looked for: {pythons}"
  exit {no_python}
fi
# The run's own copy of Cordée, unpacked, so that Python keeps what it has compiled.
"$python" -m zipfile -e "$run/submit/{node_side}" "$run/node.zip" || exit
export PYTHONPATH="$PWD/$run/node.zip"
exec "$python" -s -c "$start" cordee.backends.htcondor.node.first --run "$run"
"""


def program(folder: RunFolder, plan: dict[str, Any]) -> str:
    """Return the program of the job."""
    step = plan["steps"][0]
    # Of an image it is the image's own: no path of this machine, or of the pool's, means anything there.
    given = [] if image_of(step) else [plan.get("python") or sys.executable]
    tried = [*given, "python3", "/usr/bin/python3", *(f"python3.{minor}" for minor in range(14, 8, -1))]
    names = list(dict.fromkeys(tried))
    path = step["environment"]["document"]["config"]["env"].get("PATH") if image_of(step) else None
    return _PROGRAM.format(
        run=shlex.quote(folder.id),
        start=shlex.quote(START),
        pythons=shlex.join(names),
        path=shlex.quote(path) if path else "${PATH:-/usr/local/bin:/usr/bin:/bin}",
        no_python=EXIT_NO_PYTHON,
        node_side=NODE_SIDE,
        outputs=shlex.join((*OUTPUTS, "journal")),
        last_words=LAST_WORDS,
    )


def description(folder: RunFolder, plan: dict[str, Any]) -> str:
    """Return the submit file, whose paths are relative to the folder of runs, from where it is submitted."""
    step = plan["steps"][0]
    request, scheduler = step["request"], step["request"]["scheduler"]
    run, tasks, attributes = folder.id, step["tasks"], scheduler.get("attributes", {})
    brought = ["plan.json", *(f"submit/{name}" for name in (NODE_SIDE, CODE, LUGGAGE)), "journal", "checkpoints"]
    inputs = [f"{run}/{name}" for name in brought]
    inputs += [data["place"] for data in step.get("data", []) if "://" not in data["place"]]
    cpus = request["ranks_per_node"] * (request["cpus_per_rank"] or 1)
    lines = [
        f"# Run {run} of Cordée. What it starts, as plan.json has it:",
        *(f"#   {line} ." for line in shlex.join(tasks["argv"]).splitlines()),  # a \\ at its end would go on
        *(
            ["# With others of its parent it is submitted by the parent's submit/htcondor-jobs-N.sub."]
            * bool(plan.get("parent"))
        ),
        *_universe(folder, image_of(step)),
        f"executable = {run}/submit/{PROGRAM}",
        f"batch_name = {_quoted(plan['name'])}",
        f"initialdir = {folder.root.parent}",
        f"output = {run}/submit/htcondor-$(Cluster).$(Process).out",
        f"log = {run}/submit/{EVENTS}",
        "",
        "should_transfer_files = YES",
        "preserve_relative_paths = True",
        f"transfer_input_files = {', '.join(inputs)}",
        f"transfer_output_files = {', '.join(f'{run}/{name}' for name in (*OUTPUTS, 'journal'))}, {LAST_WORDS}",
        f'transfer_output_remaps = "{LAST_WORDS} = {run}/journal/{LAST_WORDS_HOME}"',
        "when_to_transfer_output = ON_EXIT_OR_EVICT",
        f"job_max_vacate_time = {math.ceil(step['checkpoint']['grace_s']) + _MORE_VACATE_S}",
        *([] if "JobLeaseDuration" in attributes else [f"job_lease_duration = {_LEASE_S}"]),
        "# The run goes on in another start of this job, also where its first process was killed.",
        f"on_exit_remove = ExitBySignal =!= True && ExitCode =!= {EXIT_AGAIN}",
        f"on_exit_hold = ExitCode =?= {EXIT_NO_PYTHON}",
        'on_exit_hold_reason = "no Python of version 3.9 or later on the machine"',
        f"on_exit_hold_subcode = {EXIT_NO_PYTHON}",
        "",
        f"request_cpus = {cpus}",
        f"request_memory = {math.ceil((request['memory_bytes'] or _DEFAULT_MEMORY) / _MIB)}MB",
        f"request_disk = {math.ceil((request['disk_bytes'] or _default_disk(step)) / _MIB)}MB",
        *_gpus(request),
    ]
    if scheduler.get("requirements"):
        lines.append(f"requirements = {scheduler['requirements']}")
    lines += ["", "# Signs of life come home while the job runs.", "+WantIOProxy = true"]
    lines += [f"+{name} = {_value(value)}" for name, value in attributes.items()]
    return "\n".join([*lines, f'+{RUN_ATTRIBUTE} = "{run}"', "queue", ""])


def image_of(step: dict[str, Any]) -> str:
    """Return the image that a step of a plan begins in, as a path or an address; empty: none."""
    root = ((step.get("environment") or {}).get("document") or {}).get("root") or {}
    return str(root.get("path", "")) if root.get("kind") == "entered" else ""


def travels(image: str) -> bool:
    """Return whether an image is a file of this machine."""
    return bool(image) and "://" not in image and not image.startswith(_ON_MACHINES)


def _universe(folder: RunFolder, image: str) -> list[str]:
    if not image:
        return ["universe = vanilla"]
    if travels(image):
        image = str(folder.submit / IMAGE)
    kept = ["transfer_container = False"] if image.startswith(_ON_MACHINES) else []
    return ["universe = container", f"container_image = {image}", *kept]


def of_any(folder: RunFolder, plan: dict[str, Any]) -> str:
    """Return the submit file of a run with the macro `run` in place of its id: runs for which it is the same are one submission."""
    return description(folder, plan).replace(folder.id, "$(run)")


def together(text: str, plan: dict[str, Any], runs: Sequence[str], path: Path) -> str:
    """Return the submit file of many runs, whose jobs HTCondor makes as others leave.

    Args:
        text: as `of_any` has it.
        plan: of one of them.
        path: where it is going to lie.
    """
    scheduler = plan["steps"][0]["request"]["scheduler"]
    limits = {"max_idle": scheduler.get("max_idle") or _MOST_IDLE, "max_materialize": scheduler.get("max_materialize")}
    lines = [f"{name} = {value}" for name, value in limits.items() if value and value < len(runs)]
    lines.append(f'+{TOGETHER_ATTRIBUTE} = "{path}"')
    return "\n".join([text.removesuffix("queue\n") + "\n".join(lines), _ROWS + "\n".join(runs), ")", ""])


def runs_in(text: str) -> list[str]:
    """Return the runs of a submit file of many, by the numbers of their processes."""
    return text.partition(_ROWS)[2].partition("\n)")[0].split()


def _gpus(request: dict[str, Any]) -> list[str]:
    """Return what is asked of GPUs."""
    if not request["gpus_per_node"]:
        return []
    lines = [f"request_gpus = {request['gpus_per_node']}"]
    for part in (request["gpu"] or "").split(","):
        name, _, value = re.sub(r"[<>=]+", " ", part).strip().partition(" ")
        if name == "memory":
            lines.append(f"gpus_minimum_memory = {math.ceil(parse_size(value.strip()) / _MIB)}")
        elif name == "capability":
            lines.append(f"gpus_minimum_capability = {value.strip()}")
        elif name == "model":
            lines.append(f'require_gpus = DeviceName == "{value.strip()}"')
    return lines


def _default_disk(step: dict[str, Any]) -> int:
    image = image_of(step)
    image_bytes = os.path.getsize(image) if travels(image) and os.path.exists(image) else 0
    return _LEAST_DISK + 2 * sum(data.get("bytes") or 0 for data in step.get("data", [])) + image_bytes


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return '"' + value.replace('"', '\\"') + '"' if isinstance(value, str) else str(value)


def _quoted(name: str) -> str:
    return name.replace('"', "'")
