"""Is the node made of what it should be made of?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cordee.core.units import format_size
from cordee.machine.machine import read_machine
from cordee.systems.vetting.node.checks._base import CannotTest, Check, Comparison, Context, Parameter, Result

_COUNTS = ("sockets", "cores", "threads", "numa_nodes")
_RATIO = 0.95


class InventoryCheck(Check):
    """Counts sockets, cores, threads, NUMA nodes, memory and network devices; what is not given must be the peers'."""

    name = "host.inventory"
    title = "Does the node have the processors, the memory and the network devices that it should have?"
    parameters = (
        Parameter("sockets", "count", "processors; without it, as many as the peers have"),
        Parameter("cores", "count", "cores that are online; without it, as many as the peers have"),
        Parameter("threads", "count", "hardware threads that are online; without it, as many as the peers have"),
        Parameter("numa_nodes", "count", "NUMA nodes; without it, as many as the peers have"),
        Parameter("cpu_model", "text", "a part of the processor's name; without it, the name that the peers have"),
        Parameter("min_memory", "size", "least memory of the machine"),
        Parameter("nics", "texts", "InfiniBand devices and network interfaces that must be there, by name"),
        Parameter(
            "min_ratio", "ratio", "least memory against the peers' 75th percentile", default=_RATIO, unit="of the peers"
        ),
    )

    def run(self, parameters: dict[str, Any], context: Context) -> Result:
        machine = read_machine(context.root)
        if not machine.threads:
            raise CannotTest(f"no processor is seen in {context.host('/sys/devices/system/cpu')}", "closed")
        found: dict[str, Any] = {**machine._asdict(), "nics": " ".join(machine.nics)}
        found["memory_gib"] = round(found.pop("memory_bytes") / (1 << 30), 1)
        faults = [
            f"{found[name]} {name.replace('_', ' ')}, {parameters[name]} expected"
            for name in _COUNTS
            if parameters.get(name) is not None and found[name] != parameters[name]
        ]
        model = parameters.get("cpu_model")
        if model is not None and model.lower() not in machine.cpu_model.lower():
            faults.append(f"the processor is {machine.cpu_model or 'not named'}, {model} expected")
        minimum = parameters.get("min_memory")
        if minimum is not None and machine.memory_bytes < minimum:
            faults.append(f"{format_size(machine.memory_bytes)} memory, {format_size(minimum)} expected")
        faults += [f"no network device {name}" for name in parameters.get("nics") or [] if name not in machine.nics]
        same = [name for name in (*_COUNTS, "cpu_model", "nics") if parameters.get(name) is None]
        compare = [asdict(Comparison("same", name)) for name in same]
        compare.append(asdict(Comparison("low", "memory_gib", ratio=parameters["min_ratio"])))
        described = (
            f"{machine.sockets} x {machine.cpu_model or 'processor'}, {machine.cores} cores, {machine.threads} threads,"
            f" {machine.numa_nodes} NUMA nodes, {format_size(machine.memory_bytes)} memory,"
            f" network: {found['nics'] or 'none'}"
        )
        status = "fail" if faults else "pass"
        evidence = "; ".join([*faults, described])
        return self.result(status, evidence, value=machine.threads, unit="threads", facts=found, compare=compare)
