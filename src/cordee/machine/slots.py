"""What a node has for tasks, and the one allocator that gives parts of it and takes them back.

Nothing here looks at a machine: see `cordee.machine.inventory`. Same questions in the same order have the same answers.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Mapping, NamedTuple, Optional, Sequence

from cordee.core.errors import CordeeError
from cordee.machine.gpus.affinity import range_list


class Core(NamedTuple):
    """The CPUs of one physical core that may be used, and its NUMA node; None: the kernel knows of none."""

    cpus: frozenset[int]
    numa: Optional[int] = None


class Instance(NamedTuple):
    """A part of a GPU (MIG) as a device of its own; the bytes of its memory where the driver has told."""

    uuid: str
    memory_bytes: Optional[int] = None


class AllocatableGpu(NamedTuple):
    """One GPU, the CPUs near it that may be used (none: the kernel does not say), and what its driver has told of it."""

    address: str
    uuid: str = ""
    near: frozenset[int] = frozenset()
    memory_bytes: Optional[int] = None
    instances: tuple[Instance, ...] = ()

    @property
    def name(self) -> str:
        """By which it is asked for: its UUID, or its PCI address where the kernel tells none."""
        return self.uuid or self.address


class NodeSlots(NamedTuple):
    """What a node has for us; cores in the order of their first CPUs, GPUs in that of their addresses."""

    cores: tuple[Core, ...] = ()
    gpus: tuple[AllocatableGpu, ...] = ()
    memory_bytes: int = 0


class Given(NamedTuple):
    """What a task was given.

    Attributes:
        cpus: None: it stays where it is.
        cores: whole ones that fall to it, for as many threads; 0 where it stays where it is.
        words: what was done about the CPUs, or why nothing was.
        share: of each of its GPUs.
        memory_bytes: that it has asked for.
    """

    cpus: Optional[frozenset[int]] = None
    gpus: tuple[str, ...] = ()
    cores: int = 0
    words: str = "not bound"
    share: float = 1.0
    memory_bytes: int = 0


class SlotRequest(NamedTuple):
    """What a task of a pool asks for: whole cores, GPUs (a number below 1 is a share of one), bytes of memory."""

    cores: int = 1
    gpus: float = 0.0
    memory_bytes: int = 0

    @property
    def devices(self) -> int:
        """How many GPUs, or instances, it needs, be it a share of one."""
        return max(1, int(self.gpus)) if self.gpus > 0 else 0


NOTHING_GIVEN = Given()
_ROUNDING = 1e-6


class CannotGive(CordeeError):
    """The node does not have what a task asks for, or others hold it."""


class SlotAllocator:
    """The one allocator of a node.

    Args:
        look: returns what there is.

    Attributes:
        has: what there was at the last look.
    """

    def __init__(self, look: Callable[[], NodeSlots]) -> None:
        self._look = look
        self._told: dict[str, dict[str, Any]] = {}
        self._held: dict[str, Given] = {}
        self.look_again()

    def look_again(self) -> None:
        """See what there is now; who holds something keeps it."""
        has = self._look()
        self.has = has._replace(gpus=tuple(_detailed(gpu, self._told) for gpu in has.gpus))

    def learn(self, devices: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what a driver tells of devices, by UUID: `parent`, `memory_bytes`. Only of GPUs that the kernel shows it is used."""
        for uuid, about in devices.items():
            self._told.setdefault(uuid, {}).update(about)
        self.has = self.has._replace(gpus=tuple(_detailed(gpu, self._told) for gpu in self.has.gpus))

    def give(self, asks: Mapping[str, tuple[str, ...]]) -> dict[str, Given]:
        """Give tasks, by name, the GPUs, or UUIDs of instances, that they ask for, and cores near them: to all of them, or none.

        Who asks at once for the same GPU shares it. Tasks share the cores near their GPUs by whole ones, as equal in number
        as can be; where fewer are free than there are tasks they share all that are near.

        Raises:
            CannotGive: says what was asked for and what is there.
        """
        again = [name for name in asks if name in self._held]
        if again:
            raise CannotGive("a task holds slots already", given=again[0], next="take them back first")
        for name, gpus in asks.items():
            self._look_at_gpus(name, gpus)
        given = self._given(asks)
        self._held.update(given)
        return given

    def lend(self, name: str, asked: SlotRequest) -> Optional[Given]:
        """Give a task of a pool what it asks for, None where others hold it now: cores near its GPUs first, shares of a GPU that is shared already.

        Raises:
            CannotGive: the node has less than that in all.
        """
        devices = self._devices()
        self._look_whether_it_fits(name, asked, len(devices))
        taken: set[int] = set()
        load, memory = dict.fromkeys(devices, 0.0), 0
        for given in self._held.values():
            taken |= given.cpus or frozenset()
            memory += given.memory_bytes
            for gpu in given.gpus:
                load[gpu] = load.get(gpu, 0.0) + given.share
        share = min(1.0, asked.gpus) if asked.gpus else 1.0
        free = [gpu for gpu in devices if load[gpu] + share <= 1 + _ROUNDING]
        # The fullest one that has room: what is free altogether stays free for those who need a whole one.
        gpus = tuple(sorted(free, key=lambda gpu: -load[gpu])[: asked.devices])
        cores = [core.cpus for core in self.has.cores if not core.cpus & taken]
        near = frozenset().union(*(self._near(gpu) for gpu in gpus))
        cores.sort(key=lambda cpus: not cpus & near)
        if len(gpus) < asked.devices or len(cores) < asked.cores or memory + asked.memory_bytes > self.has.memory_bytes:
            return None
        cpus = frozenset().union(*cores[: asked.cores]) if asked.cores else None
        words = f"{asked.cores} cores" if cpus else "not bound: it asks for no core"
        given = self._held[name] = Given(cpus, gpus, asked.cores, words, share, asked.memory_bytes)
        return given

    def _devices(self) -> list[str]:
        """Return what a task can have as a GPU: those that are cut into instances by their instances."""
        return [name for gpu in self.has.gpus for name in ([part.uuid for part in gpu.instances] or [gpu.name])]

    def _look_whether_it_fits(self, name: str, asked: SlotRequest, devices: int) -> None:
        there = (len(self.has.cores), devices, self.has.memory_bytes)
        if asked.cores > there[0] or asked.devices > there[1] or asked.memory_bytes > there[2]:
            raise CannotGive(
                f"{name} asks for more than the node has",
                given=f"{asked.cores} cores, {asked.gpus:g} GPUs, {asked.memory_bytes} bytes of memory",
                allowed=f"{there[0]} cores, {there[1]} GPUs, {there[2]} bytes of memory",
            )

    def take_back(self, name: str) -> None:
        """Take back what a task holds, if it holds anything."""
        self._held.pop(name, None)

    def gpu(self, name: str) -> Optional[AllocatableGpu]:
        """Return the GPU of this name, or the one that has the instance of this name."""
        for gpu in self.has.gpus:
            if name == gpu.name or any(name == part.uuid for part in gpu.instances):
                return gpu
        return None

    def _look_at_gpus(self, name: str, gpus: tuple[str, ...]) -> None:
        holders = {asked: holder for holder, given in self._held.items() for asked in given.gpus}
        for asked in gpus:
            gpu = self.gpu(asked)
            if gpu is None:
                devices = [one for gpu in self.has.gpus for one in (gpu.name, *(part.uuid for part in gpu.instances))]
                raise CannotGive(
                    f"{name} asks for a GPU that is not here", given=asked, allowed=", ".join(devices) or "no GPU"
                )
            same = [gpu.name, *(part.uuid for part in gpu.instances)] if asked == gpu.name else [gpu.name, asked]
            holder = next((holders[one] for one in same if one in holders), None)
            if holder is not None:
                raise CannotGive(f"{name} asks for a GPU that {holder} holds", given=asked, next=f"end {holder} first")

    def _given(self, asks: Mapping[str, tuple[str, ...]]) -> dict[str, Given]:
        """Return what each task gets."""
        taken: set[int] = {cpu for given in self._held.values() for cpu in given.cpus or ()}
        found: dict[str, Given] = {}
        sharing: dict[frozenset[int], list[str]] = {}
        for name, gpus in asks.items():
            near = frozenset().union(*(self._near(asked) for asked in gpus))
            if near:
                sharing.setdefault(near, []).append(name)
            elif gpus:
                words = "not bound: the kernel names no CPUs near its GPU that it may use"
                found[name] = Given(gpus=gpus, words=words)
            else:
                found[name] = Given(words="not bound: its GPU is not known")
        for near in sorted(sharing, key=len):
            names = sharing[near]
            parts = _parts(self._cores(near - taken), len(names))
            how = f", shared by {len(names)} ranks" if not parts and len(names) > 1 else ""
            for name, part in zip(names, parts or [near] * len(names)):
                words = f"near GPU {self._addresses(asks[name])}: {self._where(near)}, CPUs {range_list(part)}{how}"
                found[name] = Given(part, asks[name], len(self._cores(part)) if parts else 1, words)
                taken |= part
        return {name: found[name] for name in asks}

    def _near(self, name: str) -> frozenset[int]:
        gpu = self.gpu(name)
        return gpu.near if gpu is not None else frozenset()

    def _cores(self, cpus: Collection[int]) -> list[frozenset[int]]:
        """Return these CPUs by physical core."""
        return [core.cpus & frozenset(cpus) for core in self.has.cores if core.cpus & frozenset(cpus)]

    def _addresses(self, gpus: tuple[str, ...]) -> str:
        return ", ".join(dict.fromkeys(gpu.address for gpu in map(self.gpu, gpus) if gpu is not None))

    def _where(self, cpus: frozenset[int]) -> str:
        nodes = {core.numa for core in self.has.cores if core.cpus & cpus}
        (node,) = nodes if len(nodes) == 1 else (None,)
        return f"NUMA node {node}" if node is not None else "the CPUs"


def _parts(cores: Sequence[frozenset[int]], count: int) -> list[frozenset[int]]:
    """Return the cores in parts as equal in number as can be; none where there are fewer cores than parts."""
    if len(cores) < count:
        return []
    cuts = [len(cores) * index // count for index in range(count + 1)]
    return [frozenset().union(*cores[first:stop]) for first, stop in zip(cuts, cuts[1:])]


def union_of(cores: Sequence[Core]) -> frozenset[int]:
    return frozenset().union(*(core.cpus for core in cores))


def _detailed(gpu: AllocatableGpu, told: Mapping[str, Mapping[str, Any]]) -> AllocatableGpu:
    """Return a GPU with what its driver has told."""
    parts = [
        Instance(uuid, about.get("memory_bytes"))
        for uuid, about in sorted(told.items())
        if gpu.uuid and about.get("parent") == gpu.uuid
    ]
    return gpu._replace(memory_bytes=told.get(gpu.uuid, {}).get("memory_bytes"), instances=tuple(parts))
