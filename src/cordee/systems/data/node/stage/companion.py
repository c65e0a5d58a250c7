"""Beside the ranks of a node: the process that stages its data sets, and where ranks find them."""

from __future__ import annotations

import json
import os
from typing import Any, Optional

from cordee.control.agent.companions import Companion, CompanionHost
from cordee.control.agent.orders import Handlers
from cordee.control.supervisor.stager import LOOK_PORT
from cordee.core.clock import unix_s
from cordee.machine.node_tiers import tiers
from cordee.machine.processes.module_command import module_argv
from cordee.machine.tasks.task import STDOUT, Task, TaskExit
from cordee.runs.folder import say
from cordee.runs.plan import RunPlan
from cordee.systems.data.node.read.variables import data_variable
from cordee.systems.data.node.stage.claims import StagedSets
from cordee.systems.data.node.stage.run_stager import SYSTEM
from cordee.telemetry.node.blocklog import encode_grid, encode_schema
from cordee.telemetry.node.catalogue import STAGING, described
from cordee.wire.messages import StageOrder, Staging
from cordee.wire.stores.access import access_of

_MODULE = "cordee.systems.data.node.stage.worker"
_GROUP = "staging"
_EVERY_S = 1.0


class StagingCompanion(Companion):
    """Hands orders to that process, and its answers to the supervisor; see Companion."""

    def __init__(self, plan: RunPlan, node: str) -> None:
        super().__init__(plan, node)
        self._host: Optional[CompanionHost] = None
        self._places: dict[str, str] = {}
        self._task, self._count = "", 0
        self._schema: Optional[int] = None

    def shown(self) -> tuple[str, ...]:
        places: dict[str, None] = {}
        for one in self.plan.step.data:
            for tier in tiers(one["stage"]["tiers"]) if one.get("stage") else ():
                if one["to"] in ("auto", tier.kind):
                    places[str(StagedSets(tier.folder).root)] = None
        return tuple(places) if self.plan.step.environment is not None else ()

    def attach(self, host: CompanionHost) -> Handlers:
        self._host = host
        return {StageOrder: self._order}

    def environment(self, env: dict[str, str], rank: int) -> dict[str, str]:
        return {**env, **{data_variable(name): place for name, place in self._places.items()}}

    def _order(self, order: StageOrder, body: bytes) -> None:
        if order.system != SYSTEM:
            return
        assert self._host is not None
        tasks, asked = self._host.watched.tasks, order.request.get("do")
        if asked == "begin":
            if self._task:
                tasks.hang_up(self._task)
            self._begin(self._host, order.request)
        elif asked == "end":
            tasks.close_stdin(self._task)
        else:
            tasks.write(self._task, _line(order.request))

    def _begin(self, host: CompanionHost, request: dict[str, Any]) -> None:
        self._count += 1
        self._task = name = f"stage-{self._count}"
        tell, rest = host.uplink.teller(), bytearray()

        def printed(stream: int, data: bytes) -> None:
            if stream != STDOUT:
                say(f"cordee staging on {self.node}: {data.decode(errors='replace').rstrip()}")
                return
            rest.extend(data)
            while b"\n" in rest:
                line, _, after = bytes(rest).partition(b"\n")
                rest[:] = after
                said = json.loads(line)
                self._hear(said)
                tell(Staging(SYSTEM, {**said, "begun": request["begun"]}))

        def finished(ended: TaskExit) -> None:
            if self._task == name:
                self._task = ""
            how = ended.text or f"{ended.reason}, code {ended.code}, signal {ended.signal}"
            tell(Staging(SYSTEM, {"ended": how, "begun": request["begun"]}))

        first = {**request, "node": self.node, "claim": os.getpid(), "looks": self._looks()}
        task = Task(
            name,
            tuple(module_argv(_MODULE, user_site=True)),
            {**os.environ, **access_of(self.plan.step.tasks.env), "PYTHONPATH": str(host.node_zip)},
            "/",
            group="stage",
            stdin=_line(first),
            open_stdin=True,
        )
        host.watched.run_task(task, finished, output=printed)

    def _looks(self) -> list[tuple[str, Any]]:
        """Return who looks at what was staged, with what the plan holds for each."""
        parts = sorted(self.plan.node_parts.items())
        systems = self.plan.step.systems
        return [(part, systems.get(port[len(LOOK_PORT) :], {})) for port, part in parts if port.startswith(LOOK_PORT)]

    def _hear(self, said: dict[str, Any]) -> None:
        """Keep where a data set lies, and tell how much of it has come."""
        name = said.get("staged")
        if name is not None and "path" in said:
            self._places[name] = said["path"]
        name = said.get("so_far", name)
        if name is None or "bytes" not in said or self._host is None:
            return
        values = [float(said["bytes"]), float(said["source_bytes"])]
        metrics = [described(metric.name, "agent") for metric in STAGING]
        schema, encoded = encode_schema(self.node, _GROUP, _EVERY_S, [f"{self.node} {name}"], metrics)
        records = b"" if schema == self._schema else encoded
        self._schema = schema
        self._host.add(records + encode_grid(schema, unix_s(), values))


def _line(asked: dict[str, Any]) -> bytes:
    return json.dumps(asked).encode() + b"\n"
