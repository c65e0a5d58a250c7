"""An srun for tests: places the tasks on nodes that are only names, waits for them, and says of each what srun would say.

As with the real one, the tasks are not its children's children: they outlive a killed srun. FAKE_SRUN changes its mind:
`refuse` fails as for an unknown MPI plug-in, `nobody` starts nothing and waits, `skip:N` starts no task of rank N.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from cordee.core.hostlist import expand_nodes


def main() -> int:
    """Do as srun does."""
    words = sys.argv[1:]
    options = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    command = words[next(index for index, word in enumerate(words) if not word.startswith("--")) :]
    mind = os.environ.get("FAKE_SRUN", "")
    print("srun:", *words[: -len(command)], flush=True)
    if mind == "refuse":
        print("srun: error: cannot find mpi plugin for mpi/none-such", file=sys.stderr)
        return 1
    if mind == "nobody":
        time.sleep(600)
    per_node, tasks = int(options["ntasks-per-node"]), {}
    for rank in range(int(options["ntasks"])):
        if mind == f"skip:{rank}":
            continue
        node = expand_nodes(options["nodelist"])[rank // per_node]
        env = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % per_node), "SLURMD_NODENAME": node}
        process = subprocess.Popen(command, env={**os.environ, **env, "PMI_RANK": str(rank)}, start_new_session=True)
        tasks[process] = f"{node}: task {rank}"

    def end(number: int, frame: object) -> None:
        for process in tasks:
            process.kill()

    signal.signal(signal.SIGTERM, end)
    worst = 0
    for process, name in tasks.items():
        code = process.wait()
        worst = max(worst, abs(code))
        if code:
            print(f"srun: error: {name}: Exited with exit code {code}", file=sys.stderr)
    return worst


if __name__ == "__main__":
    sys.exit(main())
