"""What is asked of a node before it may have ranks: set-up lines, checks, free ports, its clock."""

from __future__ import annotations

import json
import os

from cordee import wire
from cordee.control.agent.enclosure import Enclosure, EnclosureDown
from cordee.control.agent.node_log import NodeLog
from cordee.control.agent.orders import Handlers
from cordee.control.agent.output import LastOutput
from cordee.control.agent.ranks.channels import NoRoom, RankChannels
from cordee.control.agent.ranks.commands import RankEnvironment
from cordee.control.agent.uplink import Uplink
from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError
from cordee.core.secrets import secret_values
from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.callbacks import WatchedTasks
from cordee.machine.tasks.shell_lines import environment_in, lines_shell, lost_environment
from cordee.machine.tasks.task import STDERR, Task, TaskExit
from cordee.runs.folder import RunFolder
from cordee.runs.plan import RunPlan, part_in
from cordee.wire.messages import Checks, ChecksDone, ChecksOutput, Clock, FreePorts, Port, Setup, SetupDone, Time

_SETUP, _CHECKS = "setup", "checks"
# More no kernel hands to a process by default.
_ENVIRONMENT_BYTES = 2 << 20
# The module that is run to ask a node's checks.
CHECKS_PART = "checks"


class Preparation:
    """Does it; each answer goes to the session that asked.

    Args:
        plan: the run's.
        folder: the run's.
        node: the node's name.
        watched: starts processes.
        enclosure, environment: that they run in; set-up lines change the environment of all that comes later.
        channels: in whose folder set-up lines leave the environment.
        log: takes what they print.
        uplink: where answers go.

    Attributes:
        handlers: what takes the orders that are meant for it, by their type.
    """

    def __init__(
        self,
        plan: RunPlan,
        folder: RunFolder,
        node: str,
        watched: WatchedTasks,
        enclosure: Enclosure,
        environment: RankEnvironment,
        channels: RankChannels,
        log: NodeLog,
        uplink: Uplink,
    ) -> None:
        self._lines = plan.step.tasks.setup
        self._secrets = secret_values(plan.step.tasks.env, self._lines)
        self._checks = part_in(plan.node_parts, CHECKS_PART)
        self._folder, self._node, self._watched, self._enclosure = folder, node, watched, enclosure
        self._environment, self._channels, self._log, self._uplink = environment, channels, log, uplink
        self.handlers: Handlers = {
            Setup: self._set_up,
            Checks: self._check,
            Port: self._find_ports,
            Clock: self._tell_time,
        }

    def forget(self) -> None:
        """End what runs for a supervisor that is gone."""
        for group in (_SETUP, _CHECKS):
            self._watched.tasks.stop(group, 0.0)

    def _set_up(self, order: Setup, body: bytes) -> None:
        tell, tail = self._uplink.teller(), LastOutput(self._secrets)
        try:
            self._channels.renew()
            output = self._channels.reserve("setup-environment", _ENVIRONMENT_BYTES)
            inside = self._enclosure.encloses
            shell = self._enclosure.wrap(lines_shell(self._lines, str(output), inside))
        except (NoRoom, EnclosureDown) as error:
            tell(SetupDone(order.id, "fail", error.text, 0.0))
            return

        def printed(stream: int, data: bytes) -> None:
            tail.add(stream, data)
            self._log.write_own(stream, data)

        def finished(ended: TaskExit) -> None:
            text = ended.text
            if ended.code == 0:
                try:
                    left = output.read_bytes()
                    output.unlink()
                    lost = lost_environment(left, 0, self._lines, "set-up line")
                    if lost is None:
                        self._environment.now = environment_in(left)
                    else:
                        text = f"{lost[0]}: {lost[1]} ({lost[2]})"
                except OSError as error:
                    text = f"the set-up's environment cannot be read: {error}"
            else:
                output.unlink(missing_ok=True)
                text = text or tail.message() or f"set-up ended: {ended.reason}"
            status = "pass" if ended.code == 0 and not text else "fail"
            tell(SetupDone(order.id, status, text, ended.seconds))

        task = Task(
            f"setup-{self._uplink.epoch}-{order.id}",
            shell,
            dict(self._environment.base, CORDEE_SETUP_NODE=self._node),
            self._enclosure.cwd,
            deadline_s=order.deadline_s,
            group=_SETUP,
            keeps_children=True,
        )
        self._watched.run_task(task, finished, output=printed)

    def _check(self, order: Checks, body: bytes) -> None:
        tell, root = self._uplink.teller(), str(self._folder.root)
        here = {"env": dict(self._environment.now, CORDEE_NODE=self._node), "run_folder": root}
        where = {"workdir": self._enclosure.workdir, "inside": self._enclosure.words(), "asked_at": monotonic()}
        task = Task(
            order.id,
            tuple(module_argv(self._checks)),
            dict(os.environ, PYTHONPATH=str(self._folder.node_zip), CORDEE_NODE=self._node),
            root,
            deadline_s=order.deadline_s,
            group=_CHECKS,
            stdin=json.dumps({**order.request, **here, **where}).encode(),
        )

        def printed(stream: int, data: bytes) -> None:
            if stream == STDERR:
                self._log.write_own(stream, data)
            else:
                tell(ChecksOutput(order.id), data)

        def finished(ended: TaskExit) -> None:
            tell(ChecksDone(order.id, ended.code, ended.signal, ended.reason, ended.text))

        self._watched.run_task(task, finished, output=printed)

    def _find_ports(self, order: Port, body: bytes) -> None:
        try:
            answer = FreePorts(order.id, wire.pick_ports(order.host, order.count), "")
        except (OSError, CordeeError) as error:
            answer = FreePorts(order.id, (), str(error))
        self._uplink.news(answer)

    def _tell_time(self, order: Clock, body: bytes) -> None:
        self._uplink.news(Time(order.id, unix_s()))
