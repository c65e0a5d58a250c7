"""The disposable cluster with the faults that tests put into it, and how they are put right."""

from __future__ import annotations

import signal
import time

from cordee.backends.slurm.node.commands import ENDED_STATES, parse_records
from cordee.core.errors import UsageError
from cordee.testing.daemons import cut_power
from cordee.testing.slurm import files
from cordee.testing.slurm.daemons import DisposableSlurmError
from cordee.testing.slurm.life import WAIT_S, Cluster

_READY = frozenset(["IDLE", "MIXED", "ALLOCATED", "COMPLETING"])
_DRAINED = frozenset(["DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"])


class DisposableSlurm(Cluster):
    """A real Slurm of one's own in a private folder: unprivileged, with munge, many slurmd on one machine.

    Nodes share this machine's kernel, file system and cores: it is valid for what a scheduler does, not for speed.

    Args:
        folder: made by `up`, removed by `down`; missing or empty before.
        nodes, cpus, memory_mb, gpus: how many nodes, and what each claims to have; GPUs are devices nobody can open.
        accounting: also slurmdbd with MariaDB, and the account `research`.
        partitions: name to settings; default: `normal` without a limit, and `debug` (30 min), which preempts it.
        settings: lines of slurm.conf that replace ours.
        files: more files beside slurm.conf, name to text, as cgroup.conf, topology.conf or plugstack.conf.
        suite: the Debian suite whose Slurm is used, fetched once through apt's sources; default: what CORDEE_SLURM_SUITE
            says, else what is installed.
        base_port: the first of `nodes` + 2 ports; default: free ones.

    Raises:
        UsageError: a number out of range, or a folder whose name Slurm cannot take.
    """

    def clear(self) -> None:
        """Cancel all jobs, kill what they run and wait until none is left.

        Raises:
            DisposableSlurmError: some do not go.
        """
        self._wait(self._has_no_jobs, "its jobs did not end")

    def wait_ended(self, job: str, timeout_s: float = WAIT_S) -> str:
        """Return the last state of a job, as `COMPLETED`, as soon as it has ended; `sbatch --wait` looks ever more rarely.

        Raises:
            DisposableSlurmError: it has not ended in time.
            SlurmError: the controller does not know it.
        """
        seen = [""]

        def ended() -> bool:
            record = parse_records(self.command("scontrol", "show", "job", "--oneliner", job))[0]
            seen[0] = record["JobState"]
            return seen[0] in ENDED_STATES

        self._wait_until(time.monotonic() + timeout_s, ended, f"job {job} did not end")
        return seen[0]

    def heal(self) -> list[str]:
        """Put right what faults have left: daemons, nodes, the Prolog; return what was wrong, empty when nothing was.

        Raises:
            DisposableSlurmError: it cannot be put right.
        """
        self.set_prolog(None)
        dead = [name for name in ("munged", "slurmctld", *self.node_names) if not self._daemons.pid(name)]
        if "munged" in dead:
            self._start_munge(time.monotonic() + WAIT_S)
        if "slurmctld" in dead:
            self.start_controller()
        self._start_nodes([name for name in dead if name in self.node_names])
        self._wait(self._all_registered, "its nodes did not register")
        faults = [f"{name} was dead" for name in dead]
        for node, state in self.states().items():
            if _DRAINED & _words(state) or ("DOWN" in _words(state) and node not in dead):
                faults.append(f"{node} was {state}")
                self.resume(node)
        if dead:
            # Slurm 22.05 forgets to free whole nodes with GPUs when a requeued job had lost one; this counts anew.
            self.command("scontrol", "reconfigure")
        self._wait(self._all_ready, "its nodes did not come back")
        return faults

    def stop_controller(self) -> None:
        """End slurmctld; it keeps its state."""
        self._daemons.end(["slurmctld"])

    def impatient(self, seconds: int = 2) -> dict[str, str]:
        """Return what `env` is for clients that give up a controller which is away after this time, not after ten seconds."""
        conf = self.conf.with_name(f"impatient-{seconds}.conf")
        lines = [line for line in self.conf.read_text().splitlines() if not line.startswith("MessageTimeout=")]
        conf.write_text("\n".join([*lines, f"MessageTimeout={seconds}", ""]))
        return {"SLURM_CONF": str(conf)}

    def start_controller(self) -> None:
        """Start slurmctld with the state that it left, and wait until it answers."""
        if not self._daemons.pid("slurmctld"):
            self._daemons.start("slurmctld", ["slurmctld", "-D"], self.env)
        self._wait(self._answers, "the controller did not answer", "slurmctld")

    def kill_slurmd(self, node: str) -> None:
        """Kill a node's slurmd by signal 9; its jobs run on."""
        self._daemons.end([self._require_node(node)], signal.SIGKILL)

    def kill_node(self, node: str) -> None:
        """Kill a node as a power cut does: slurmd, its slurmstepds and everything below them, none of which sees another die."""
        self.kill_slurmd(node)
        # srun has a second process that has Slurm kill the step everywhere when the first one dies before it.
        if not cut_power(lambda: self.processes_of(node)):
            raise DisposableSlurmError(f"processes of {node} did not die", given=str(self.folder))

    def start_node(self, node: str) -> None:
        """Start a node's slurmd and wait until the controller has it back."""
        self._start_nodes([self._require_node(node)])

    def drain(self, node: str, reason: str) -> None:
        """Let a node take no new jobs."""
        self._update(node, "DRAIN", f"Reason={reason}")

    def resume(self, node: str) -> None:
        """Let a node that was drained or down take jobs again."""
        self._update(node, "RESUME")

    def set_prolog(self, script: str | None) -> None:
        """Run this shell script on every node before a job's first process there; None takes it away."""
        files.write_prolog(self.folder, script)

    def _start_nodes(self, nodes: list[str]) -> None:
        dead = [node for node in nodes if not self._daemons.pid(node)]
        began = time.strftime("%Y-%m-%dT%H:%M:%S")
        self._start_slurmds(dead)

        def registered() -> bool:
            starts = {record["NodeName"]: record["SlurmdStartTime"] for record in self._node_records()}
            return all(starts.get(node, "")[:1].isdigit() and starts[node] >= began for node in dead)

        if dead and self._daemons.pid("slurmctld"):
            self._wait(registered, f"{', '.join(dead)} did not come back", *dead)

    def _all_registered(self) -> bool:
        states = self.states()
        return bool(states) and not any("UNKNOWN" in _words(state) for state in states.values())

    def _all_ready(self) -> bool:
        states = self.states()
        return bool(states) and all("*" not in state and _words(state) <= _READY for state in states.values())

    def _update(self, node: str, state: str, *more: str) -> None:
        self.command("scontrol", "update", f"NodeName={self._require_node(node)}", f"State={state}", *more)

    def _require_node(self, node: str) -> str:
        if node not in self.node_names:
            raise UsageError("the cluster has no such node", given=node, allowed=self.node_names)
        return node


def _words(state: str) -> set[str]:
    return {word.rstrip("*~#!%$@^-") for word in state.split("+")}
