"""The pool: as many instances as the requests need, a failed one started again, another model taken up one instance at a time."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from cordee.core.clock import monotonic, unix_s
from cordee.core.errors import CordeeError
from cordee.machine.tcp_sockets import connected_to
from cordee.runs.folder import say
from cordee.systems.inference.pool.balancer import Balancer
from cordee.systems.inference.pool.instance import ModelInstance
from cordee.systems.inference.pool.served import ServedModel, read_wanted, write_pool, write_wanted

_TICK_S = 0.1
_TELL_EVERY_S = 2.0
# A request that the balancer gave away just before an instance was drained is counted by then.
_SETTLED_S = 1.0
_LONGEST_PAUSE_S = 30.0


class PoolLimits(NamedTuple):
    """How many instances, and when.

    Attributes:
        least, most: instances.
        in_flight: requests for each, above which there is one more.
        calm_s: how long fewer would do before there is one less.
        ready_s: how long one may take until it answers.
        drain_s: how long the requests of one that goes may take.
        gpus: the devices of each; 0: none of its own.
    """

    least: int = 1
    most: int = 1
    in_flight: int = 4
    calm_s: float = 120.0
    ready_s: float = 300.0
    drain_s: float = 300.0
    gpus: int = 0


Start = Callable[[int, ServedModel, "tuple[str, ...] | None"], ModelInstance]


class InstancePool:
    """Instances of a model behind a balancer.

    Args:
        volume: of the service: what is to be served, and how it is, lie there.
        base: the model that the service was deployed with.
        host, port: where the balancer listens.
        limits: how many instances.
        devices: the GPUs of this allocation.
        start: makes an instance for a slot.
    """

    def __init__(
        self, volume: Path, base: str, host: str, port: int, limits: PoolLimits, devices: tuple[str, ...], start: Start
    ) -> None:
        self._volume, self._limits, self._devices, self._start = volume, limits, devices, start
        wanted = read_wanted(volume)
        if wanted is None or wanted.base != base:
            wanted = ServedModel((wanted.serial if wanted else 0) + 1, base, "", base)
            write_wanted(volume, wanted)
        self._current = wanted
        self._next: ServedModel | None = None
        self._refused = 0
        self._why = "its instances are started"
        self._slots = limits.most + 1  # one more while another model is taken up
        self._instances: list[ModelInstance] = []
        self._failures, self._pause_until, self._restarts = 0, 0.0, 0
        self._fewer_since: float | None = None
        self._told = (0.0, "")
        self._in_flight: dict[int, int] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="cordee-pool-")
        self._balancer = Balancer(Path(self._folder.name), host, port, limits.drain_s)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Serve until it is to stop; then its instances are ended.

        Raises:
            BalancerError: there is no nginx.
        """
        try:
            while not stopping():
                self.step()
                time.sleep(_TICK_S)
        finally:
            self._balancer.end()
            for one in self._instances:
                one.tell_end()
            until = monotonic() + 5.0
            while monotonic() < until and any(one.ended is None for one in self._instances):
                time.sleep(0.05)
            for one in self._instances:
                one.kill()
            self._folder.cleanup()

    def step(self) -> None:
        """Look at everything once."""
        if not self._balancer.lives:
            self._balancer.start()
        self._bury()
        self._take_up()
        self._replace() if self._next else self._scale()
        try:
            self._balancer.lead_to([one.port for one in self._instances if one.takes_requests])
        except OSError as error:  # the next look tries again
            self._why = f"the way to its instances cannot be changed: {error.strerror}"
        self._count()
        self._tell()

    def _count(self) -> None:
        """Count the requests that each instance has: the connections that are not those of the pool's own questions."""
        far = connected_to([one.port for one in self._instances])
        self._in_flight = {one.slot: len(far[one.port] - {one.asked_from}) for one in self._instances}

    def _of(self, served: ServedModel) -> list[ModelInstance]:
        return [one for one in self._instances if one.serial == served.serial and one.draining_since is None]

    def _bury(self) -> None:
        """Take out who has ended, hangs, does not become ready or has nothing to do any more."""
        now = monotonic()
        for one in list(self._instances):
            late = not one.ready and now - one.began > self._limits.ready_s
            if one.draining_since is not None:
                draining_s = now - one.draining_since
                idle = (
                    draining_s > _SETTLED_S and self._balancer.has_left(one.port) and not self._in_flight.get(one.slot)
                )
                if one.ended is None and not idle and draining_s < self._limits.drain_s:
                    continue
            elif one.ended is None and not (one.hangs or late):
                continue
            else:
                self._failed(one, late)
            one.kill()
            self._instances.remove(one)

    def _failed(self, one: ModelInstance, late: bool) -> None:
        code = one.ended
        how = (
            f"ended with exit code {code}"
            if code is not None
            else f"was not ready in time: {one.last}"
            if late
            else f"hangs: {one.last}"
        )
        self._why = f"the instance {one.slot} {how}"
        say(f"cordee pool: {self._why}")
        if self._next is not None and one.serial == self._next.serial:
            self._roll_back()
            return
        self._restarts += 1
        self._failures += 1
        self._pause_until = monotonic() + min(_LONGEST_PAUSE_S, 2.0 ** min(self._failures - 1, 5) - 1.0)

    def _take_up(self) -> None:
        """See whether another model is to be served."""
        wanted = read_wanted(self._volume)
        latest = self._next or self._current
        if wanted is None or wanted.serial <= latest.serial or wanted.base != self._current.base:
            return
        if self._next is not None:
            self._discard()
        self._next, self._why = wanted, f"{wanted.model} takes the place of {self._current.model}"
        say(f"cordee pool: {self._why}")

    def _discard(self) -> None:
        assert self._next is not None
        for one in self._of(self._next):
            self._leave(one)
        self._next = None

    def _roll_back(self) -> None:
        assert self._next is not None
        refused = self._next
        self._discard()
        self._refused = refused.serial
        self._current = ServedModel(refused.serial + 1, self._current.model, self._current.before, self._current.base)
        for one in self._instances:
            if one.draining_since is None:
                one.serial = self._current.serial
        write_wanted(self._volume, self._current)
        self._why = f"{refused.model} was refused: {self._why}; {self._current.model} serves on"

    def _replace(self) -> None:
        """Take up the next model: a new instance first, and only once it answers one of the old ones goes."""
        assert self._next is not None
        new, old = self._of(self._next), self._of(self._current)
        if not all(one.port in self._balancer.open for one in new):
            return
        if len(new) >= self._needed:
            for one in old:
                self._leave(one)
            self._current, self._next = self._next, None
            self._why = f"{self._current.model} is served"
            return
        if old and len(new) + len(old) > self._needed:
            self._leave(old.pop(0))
        if not self._begin(self._next) and old and not self._leaving:
            self._leave(old[0])  # its slot or its GPUs are needed

    @property
    def _needed(self) -> int:
        """How many instances the requests need."""
        limits, requests = self._limits, sum(self._in_flight.values())
        return min(limits.most, max(limits.least, math.ceil(requests / limits.in_flight)))

    @property
    def _leaving(self) -> bool:
        return any(one.draining_since is not None for one in self._instances)

    def _scale(self) -> None:
        """Have as many instances as the requests need."""
        own, wanted = self._of(self._current), self._needed
        if len(own) >= wanted and own and all(one.ready for one in own):
            self._failures = 0
        if len(own) < wanted and monotonic() >= self._pause_until:
            self._begin(self._current)
        if len(own) <= wanted:
            self._fewer_since = None
        elif self._fewer_since is None:
            self._fewer_since = monotonic()
        elif monotonic() - self._fewer_since > self._limits.calm_s:
            self._leave(own[-1])
            self._fewer_since = None

    def _begin(self, served: ServedModel) -> bool:
        """Start an instance; False: there is no slot, or no GPU, for it."""
        taken = {one.slot for one in self._instances}
        slot = next((one for one in range(self._slots) if one not in taken), None)
        gpus: tuple[str, ...] | None = None
        if self._limits.gpus:
            used = {gpu for one in self._instances for gpu in one.gpus or ()}
            free = [gpu for gpu in self._devices if gpu not in used]
            if len(free) < self._limits.gpus:
                return False
            gpus = tuple(free[: self._limits.gpus])
        if slot is None:
            return False
        try:
            self._instances.append(self._start(slot, served, gpus))
        except (OSError, CordeeError) as error:
            self._why = f"an instance cannot be started: {error}"
            say(f"cordee pool: {self._why}")
            if self._next is not None:
                self._roll_back()
            self._pause_until = monotonic() + _LONGEST_PAUSE_S
        return True

    def _leave(self, one: ModelInstance) -> None:
        one.draining_since = monotonic()

    def _state_of(self, one: ModelInstance) -> str:
        given = one.port in self._balancer.open
        return "draining" if one.draining_since is not None else "ready" if given else "starting"

    def _tell(self) -> None:
        state = "rolling" if self._next else "ready" if self._balancer.open else "starting"
        document: dict[str, Any] = {
            "schema": 1,
            "state": state,
            "why": self._why,
            "serial": self._current.serial,
            "model": self._current.model,
            "refused": self._refused,
            "least": self._limits.least,
            "most": self._limits.most,
            "restarts": self._restarts,
            "requests_in_flight": sum(self._in_flight.values()),
            "instances": [
                {
                    "slot": one.slot,
                    "pid": one.pid,
                    "model": str(one.model),
                    "gpus": list(one.gpus or ()),
                    "state": self._state_of(one),
                    "said": one.last,
                }
                for one in self._instances
            ],
        }
        shape = repr([state, self._why, [(one["slot"], one["pid"], one["state"]) for one in document["instances"]]])
        if shape == self._told[1] and monotonic() - self._told[0] < _TELL_EVERY_S:
            return
        self._told = monotonic(), shape
        try:
            write_pool(self._volume, {**document, "at": unix_s()})
        except CordeeError as error:  # the service goes on without
            say(f"cordee pool: its state cannot be written: {error.text}")
