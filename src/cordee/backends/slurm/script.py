"""The batch script of a run: what Slurm is asked for, and the few lines of shell that keep the control plane alive."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cordee.backends.slurm.node.allocation import agent_srun
from cordee.backends.slurm.node.commands import COMMENT_PREFIX
from cordee.control.supervisor.disks.startup import EXIT_REFUSED
from cordee.control.supervisor.supervisor import EXIT_ENDED, EXIT_NOT_OURS
from cordee.machine.processes.module_command import APART, DEAF_AT_FIRST, OUTLIVED, START
from cordee.runs.folder import RunFolder

_HUNG_S = 60
_MOST_STARTS = 10
_PATIENCE_S = 3600
_MIB = 1 << 20

_BODY = """\
run={run}
python={python}
# Runs a module as `python -m` does, but takes nothing from the folder that it is started in.
start={start}
# Runs an srun whose step outlives it.
outlived={outlived}
# The folder of submission may be anybody's; this one is ours.
cd "$run" || exit
# The run's own copy of Cordée: whatever is installed later changes nothing for it.
export PYTHONPATH="$run/node.zip${{PYTHONPATH:+:$PYTHONPATH}}"
export CORDEE_JOB_STARTED=$(date +%s.%N)
# A job step takes all memory and all cores of the job: the ranks share them below their agent.
unset "${{!SLURM_MEM_PER_@}}"
export CORDEE_CORES=$(tr ',' '\\n' <<< "${{SLURM_JOB_CPUS_PER_NODE//\\(x*([0-9])\\)/}}" | sort -n | head -n 1)

# One agent on every node. A lost node takes none of the others with it, and they live on when their srun is killed.
agents() {{
  local began=$SECONDS short=0
  until sh -c "$outlived" sh $$ {srun} --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --cpus-per-task="$CORDEE_CORES" \\
      {deaf} "$python" -s -c "$start" {agent} --folder "$run" </dev/null 9>&-; do
    (( SECONDS - began < 5 )) || short=0
    (( short++ )) && sleep 5
    kill -0 $$ || exit
    began=$SECONDS
  done
}}

# The supervisor writes a line into this pipe every second; one that has not for {hung} s hangs and makes room for the next.
exec 9<> <(:)
watch() {{
  local silent_s=0
  while kill -0 "$1" && kill -0 $$; do
    if read -r -t 5 -u 9; then
      silent_s=0
    elif (( $? <= 128 )); then
      return  # there is no pipe: nothing is known
    elif (( (silent_s += 5) >= {hung} )); then
      # A disk that stands still may hold up a supervisor that begins: it is asked first, and waited for.
      local asked=$SECONDS
      : >>"$run/control/supervisor.log" && sync "$run/control/supervisor.log"
      if (( SECONDS - asked > 2 )); then
        silent_s=0
      else
        kill -KILL "$1"
      fi
    fi
  done
}}

# Slurm signals this shell; the supervisor, in the background, has the ranks save and stop in time.
forward() {{
  signalled=1
  kill -s "$1" "$supervisor" 2>/dev/null
}}
trap 'forward USR1' USR1
trap 'forward TERM' TERM

mkdir -p "$run/control"
agents >>"$run/control/agents.log" 2>&1 &
starts=0 since=$SECONDS
while :; do
  # A disk that is read-only or gone for a while is waited for: a supervisor could not begin, and that is not its fault.
  for (( waited_s = 0; waited_s < {patience}; waited_s += 5 )); do
    [[ $signalled ]] || {{ : >>"$run/control/supervisor.log"; }} 2>/dev/null && break
    [[ -d ${{run%/*}} && ! -d $run ]] && break  # it was deleted
    sleep 5
  done
  CORDEE_HEARTBEAT=9 {apart} "$python" -s -c "$start" {supervisor} --folder "$run" \\
    >>"$run/control/supervisor.log" 2>&1 </dev/null &
  supervisor=$!
  watch "$supervisor" 2>/dev/null & watcher=$!
  while :; do
    signalled=
    wait "$supervisor"
    code=$?
    [[ $signalled ]] || break
  done
  kill "$watcher" 2>/dev/null
  case $code in
    0) break ;;                    # finished, or the next segment is on its way
    {ended}) code=1; break ;;               # failed or cancelled
    {not_ours}) code=0; break ;;               # another job leads this run
    {refused}) (( starts > 0 )) && (( --starts )); sleep 5 ;;  # the disk did not let it begin
  esac
  # It died: the next one continues from what it wrote down, and the agents find it.
  (( SECONDS - since > 60 )) && starts=0 since=$SECONDS
  if (( ++starts >= {most} )); then
    echo "the supervisor ended $starts times in a minute, the last time with $code; see $run/control/supervisor.log"
    code=1
    break
  fi
done
exit "$code"
"""


def batch_script(folder: RunFolder, plan: dict[str, Any]) -> str:
    """Return the whole script, as sbatch gets it."""
    srun = agent_srun((plan["steps"][0].get("environment") or {}).get("option"))
    body = _BODY.format(
        agent="cordee.control.agent.agent",
        supervisor="cordee.control.supervisor.supervisor",
        run=shlex.quote(str(folder.root)),
        python=shlex.quote(plan.get("python") or sys.executable),
        srun=" \\\n      ".join([shlex.join(srun[:6]), shlex.join(srun[6:])]),
        start=shlex.quote(START),
        outlived=shlex.quote(OUTLIVED[2]),
        deaf=shlex.join(DEAF_AT_FIRST),
        apart=APART,
        hung=_HUNG_S,
        ended=EXIT_ENDED,
        not_ours=EXIT_NOT_OURS,
        refused=EXIT_REFUSED,
        patience=_PATIENCE_S,
        most=_MOST_STARTS,
    )
    lines = [f"#SBATCH {option}" for option in options(folder, plan)]
    head = ["#!/bin/bash", f"# Run {folder.id} of Cordée. What Slurm is asked for:", *lines, "", *_what_runs(plan), ""]
    return "\n".join([*head, "shopt -s extglob", body])


def _what_runs(plan: dict[str, Any]) -> list[str]:
    """Return comments that say what the agents are going to start."""
    request, tasks = plan["steps"][0]["request"], plan["steps"][0]["tasks"]
    ranks = request["ranks_per_node"]
    count = f"{ranks} {'rank' if ranks == 1 else 'ranks'} on each of {request['nodes']} nodes"
    command = f"cd {shlex.quote(plan['workdir'])} && {shlex.join(tasks['argv'])}"
    return [
        f"# What the agents start, {count}, as plan.json has it:",
        *(f"#   {line}" for line in command.splitlines()),
    ]


def options(folder: RunFolder, plan: dict[str, Any]) -> list[str]:
    """Return the options of sbatch that the plan stands for."""
    step = plan["steps"][0]
    request, segment = step["request"], step["segment"]
    scheduler = request["scheduler"]
    found = [
        f"--job-name={shlex.quote(plan['name'])}",
        f"--comment={COMMENT_PREFIX}{folder.id}",
        f"--nodes={request['nodes'] + request['spare_nodes']}",
        f"--ntasks-per-node={request['ranks_per_node']}",
    ]
    if request["cpus_per_rank"]:
        found.append(f"--cpus-per-task={request['cpus_per_rank']}")
    if scheduler.get("exclusive"):
        found.append("--exclusive")
    if request["memory_bytes"]:
        found.append(f"--mem={math.ceil(request['memory_bytes'] / _MIB)}M")
    elif scheduler.get("exclusive"):
        found.append("--mem=0")
    gres, others = _generic_resources(scheduler["options"])
    if request["gpus_per_node"]:
        kind = f"{scheduler['gpu_type']}:" if scheduler.get("gpu_type") else ""
        gres.insert(0, f"gpu:{kind}{request['gpus_per_node']}")
    if gres:
        found.append(f"--gres={shlex.quote(','.join(gres))}")
    if segment["limit_s"]:
        found.append(f"--time={math.ceil(segment['limit_s'] / 60)}")
        found.append(f"--signal=B:USR1@{math.ceil(segment['grace_s'])}")
    for name in ("account", "partition", "qos", "constraint", "reservation"):
        if scheduler.get(name):
            found.append(f"--{name}={shlex.quote(scheduler[name])}")
    found += [
        "--requeue" if segment["next"] == "requeue" else "--no-requeue",
        "--no-kill",
        "--open-mode=append",
        f"--output={shlex.quote(_literal(folder.submit) + '/slurm-%j.out')}",
        *others,
    ]
    return found


def _generic_resources(options: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what `--gres` asks for, and the other options: of several --gres Slurm would take the last one alone."""
    gres, others = [], []
    for option in options:
        words, rest = iter(shlex.split(option)), []
        for word in words:
            if word == "--gres":
                gres.append(next(words, ""))
            elif word.startswith("--gres="):
                gres.append(word.partition("=")[2])
            else:
                rest.append(word)
        unchanged = len(rest) == len(shlex.split(option))
        others += [option] if unchanged else [shlex.join(rest)] if rest else []
    return [value for value in gres if value], others


def _literal(path: Path) -> str:
    """Return a path in which Slurm finds nothing to fill in."""
    return str(path).replace("%", "%%")
