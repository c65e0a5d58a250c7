"""How Cordée starts its own modules as processes: never from the current folder, which may hold anybody's files."""

from __future__ import annotations

import sys

# `python -m` takes the current folder first: a `secrets.py` there would be run in place of the library's. `-P` would do
# from Python 3.11 on, and PYTHONSAFEPATH would reach the ranks, whose script's own folder must stay first for them.
START = (
    "import sys; sys.path = [entry for entry in sys.path if entry]; import runpy; "
    'runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)'
)


def module_argv(module: str, *arguments: str, python: str = sys.executable, user_site: bool = False) -> list[str]:
    """Return argv that runs one of our modules as `python -m` does, with nothing taken from the current folder.

    Args:
        module: its full name.
        arguments: of the module.
        python: the interpreter, which finds Cordée by itself or by PYTHONPATH.
        user_site: whether packages that the user installed for themselves (`pip install --user`) are seen; the node side
            needs none, the document side may lie there.
    """
    return [python, *([] if user_site else ["-s"]), "-c", START, module, *arguments]


# What begins a command line whose process takes SIGTERM only once it listens for it: before that, it would die of it.
DEAF_AT_FIRST = ("sh", "-c", 'trap "" TERM; exec "$@"', "sh")

# What begins the command of a process, as a shell has it, that is to have a session of its own: where it stands still as its parent
# dies, the kernel sends SIGHUP to all of an orphaned process group. Without that program it stays in its parent's.
APART = "$(command -v setsid)"

# What begins the command line of an srun whose step is to outlive it; the pid of the batch script is between them. srun forks a
# process that has Slurm kill the step, on all nodes and without a warning, once srun itself was killed: as soon as it is there, it is
# killed. Where /proc has no lists of children, or Slurm no such process, the step ends as Slurm wants it. An srun that is stopped
# hears of no task's end, and Slurm would drain its nodes for that: once the batch script is gone, it is to go on.
OUTLIVED = (
    "sh",
    "-c",
    f"script=$1; shift; {APART} "
    + """"$@" & srun=$! looks=0
{ while kill -0 "$script"; do sleep 5; kill -0 "$srun" || exit; done; kill -CONT "$srun"; } 2>/dev/null &
while kill -0 "$srun" 2>/dev/null; do
  children=; { read -r children </proc/$srun/task/$srun/children; } 2>/dev/null
  for child in $children; do
    name=; { read -r name </proc/$child/comm; } 2>/dev/null
    [ "$name" != srun ] || { kill -KILL "$child"; break 2; }
  done
  [ "$((looks += 1))" -lt 100 ] && sleep 0.1 || sleep 5
done
wait "$srun"
""",
    "sh",
)
