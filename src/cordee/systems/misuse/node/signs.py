"""Signs of misuse in what the processes of a run do, from look to look: names, and work that reads, writes and learns nothing."""

from __future__ import annotations

import os
import re
from collections import deque
from typing import Collection, Deque, Mapping, NamedTuple, Optional, Sequence

from cordee.machine.files import read_once
from cordee.machine.tcp_sockets import TcpConnection

# Programs that do nothing else, by the name of their file. Their users rename them: that is why work is looked at, too.
KNOWN = (
    "xmrig", "xmr-stak*", "minerd", "cpuminer*", "ccminer", "ethminer", "t-rex", "lolminer", "nbminer", "phoenixminer", "nanominer",
    "teamredminer", "bfgminer", "cgminer", "srbminer*", "kawpowminer", "gminer", "hashcat", "hashcat.bin", "john", "hydra", "aircrack-ng",
)  # fmt: skip
_POOL = re.compile(rb"stratum\d?\+(tcp|ssl|tls)://|--(donate-level|coin|rig-id|algo[= ](rx/|randomx|kawpow|ethash))")
# Who has one of these mapped computes with floating point, or on a GPU.
_NUMERIC = re.compile(
    rb"libtorch|libcuda|libcublas|libamdhip|libopenblas|libmkl|libblas|liblapack|libgfortran|libmpi|libfftw|libjvm|_multiarray_umath|jaxlib|tensorflow"
)
WORK = 5  # signs of work that is of no use
LOOKS = 6  # in a row, for what is said of work
_STEADY, _BUSY_CORES = 0.1, 0.5
_READ_BYTES_PER_S, _WRITTEN_BYTES_PER_S = 2 << 20, 4 << 10  # John reads its own tables at up to 1 MB/s
_MOST_THREADS = 1024
_MOST_COMMAND = 4096
_MOST_MAPS = 4 << 20


class WorkSight(NamedTuple):
    """What the processes of a run have done in one interval.

    Attributes:
        cores: on how many they have run or wanted to run: other people's work on the node does not change it.
        pids: of the processes that were there at its beginning and its end.
        read, written: bytes/s that they have asked for, from and to anything; None: not known.
    """

    cores: float
    read: Optional[float]
    written: Optional[float]
    pids: frozenset[int]


class Signs(NamedTuple):
    """What speaks for misuse.

    Attributes:
        certain: a name or an address that has no other use.
        words: each sign in words, in a fixed order.
    """

    certain: bool
    words: tuple[str, ...]


class MisuseSigns:
    """Looks at the processes of one run on one node.

    Args:
        names: of programs that the site does not want, globs, beside those that are known.
        proc: where /proc is.
    """

    def __init__(self, names: Sequence[str] = (), proc: str = "/proc") -> None:
        self._proc = proc
        self._names = re.compile("|".join(_as_pattern(name) for name in (*KNOWN, *names)), re.IGNORECASE)
        self._before: dict[int, tuple[float, Optional[int], Optional[int]]] = {}
        self._at: Optional[float] = None
        self._sights: Deque[WorkSight] = deque(maxlen=LOOKS)
        self._outside: Deque[dict[str, int]] = deque(maxlen=LOOKS + 1)

    def look(self, pids: Collection[int], now: float, steps: bool, outside: Sequence[TcpConnection]) -> Optional[Signs]:
        """Look once; return what speaks for misuse, None where it is not enough.

        Args:
            pids: the processes of the run.
            now: monotonic.
            steps: whether ranks have told of steps.
            outside: their connections to other sites.
        """
        self._sight(pids, now)
        sent: dict[str, int] = {}
        for one in outside:
            sent[one.remote] = sent.get(one.remote, 0) + (one.sent or 0)
        self._outside.append(sent)
        words = [*self._named(pids)]
        certain = bool(words)
        work = self._work(pids, steps)
        place = self._one_place()
        if certain or len(work) == WORK:
            return Signs(certain, (*words, *work, *place))
        return None

    def _sight(self, pids: Collection[int], now: float) -> None:
        counts = {pid: count for pid in pids if (count := self._count(pid)) is not None}
        if self._at is not None and now > self._at:
            elapsed_s = now - self._at
            both = counts.keys() & self._before.keys()
            grown = [
                sum(max(0, (counts[pid][at] or 0) - (self._before[pid][at] or 0)) for pid in both) / elapsed_s
                for at in range(3)
            ]
            known = all(counts[pid][1] is not None for pid in both)
            read, written = (grown[1], grown[2]) if known else (None, None)
            self._sights.append(WorkSight(grown[0], read, written, frozenset(both)))
        self._before, self._at = counts, now

    def _count(self, pid: int) -> Optional[tuple[float, Optional[int], Optional[int]]]:
        cpu_s = self._wanted_s(pid)
        if cpu_s is None:
            return None
        try:
            told = dict(line.split(b": ", 1) for line in read_once(f"{self._proc}/{pid}/io").splitlines())
            return cpu_s, int(told[b"rchar"]), int(told[b"wchar"])
        except (OSError, ValueError, KeyError):
            return cpu_s, None, None

    def _wanted_s(self, pid: int) -> Optional[float]:
        """Return the seconds in which threads of a process have run, or waited for a core; None: it is gone."""
        total = 0
        try:
            for thread in os.listdir(f"{self._proc}/{pid}/task")[:_MOST_THREADS]:
                run_ns, wait_ns = read_once(f"{self._proc}/{pid}/task/{thread}/schedstat").split()[:2]
                total += int(run_ns) + int(wait_ns)
        except (OSError, ValueError):
            return None
        return total / 1e9

    def _named(self, pids: Collection[int]) -> list[str]:
        found: dict[str, None] = {}
        for pid in sorted(pids):
            command = self._text(pid, "cmdline")[:_MOST_COMMAND]
            names = [os.path.basename(word) for word in command.split(b"\0")[:1]]
            names += [self._text(pid, "comm").strip()]
            try:
                names.append(os.fsencode(os.path.basename(os.readlink(f"{self._proc}/{pid}/exe"))))
            except OSError:
                pass
            known = next((name for name in names if self._names.fullmatch(name.decode(errors="replace"))), None)
            if known is not None:
                found[f"known name: {known.decode(errors='replace')}"] = None
            if _POOL.search(command.replace(b"\0", b" ")):
                found["words of a mining pool in its command"] = None
        return list(found)

    def _work(self, pids: Collection[int], steps: bool) -> list[str]:
        """Return the signs of work that is of no use, five where all of them are there."""
        if len(self._sights) < LOOKS:
            return []
        cores = [sight.cores for sight in self._sights]
        middle = sorted(cores)[len(cores) // 2]
        words = []
        same = all(sight.pids == self._sights[0].pids for sight in self._sights)
        if same and middle >= _BUSY_CORES and max(abs(one - middle) for one in cores) <= _STEADY * middle:
            words.append(f"steady work on {middle:.1f} cores")
        reads, writes = [sight.read for sight in self._sights], [sight.written for sight in self._sights]
        if all(one is not None and one <= _READ_BYTES_PER_S for one in reads):
            words.append("reads next to nothing")
        if all(one is not None and one <= _WRITTEN_BYTES_PER_S for one in writes):
            words.append("writes nothing")
        if not steps:
            words.append("tells of no steps")
        if words and not any(_NUMERIC.search(self._text(pid, "maps", _MOST_MAPS)) for pid in pids):
            words.append("has no numeric library")
        return words

    def _one_place(self) -> list[str]:
        if len(self._outside) <= LOOKS or any(len(sent) != 1 for sent in self._outside):
            return []
        addresses = {address for sent in self._outside for address in sent}
        return [f"always connected to one place outside: {addresses.pop()}"] if len(addresses) == 1 else []

    def _text(self, pid: int, name: str, most: int = 65536) -> bytes:
        try:
            with open(f"{self._proc}/{pid}/{name}", "rb") as file:
                return file.read(most)
        except OSError:
            return b""


def _as_pattern(name: str) -> str:
    return re.escape(name).replace(r"\*", ".*").replace(r"\?", ".")


def told_signs(signs: Signs) -> Mapping[str, object]:
    """Return them as evidence of a finding."""
    return {"certain": signs.certain, "signs": list(signs.words)}
