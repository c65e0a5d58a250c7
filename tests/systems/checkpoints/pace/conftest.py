"""Runs whose steps, saves and write rates are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cordee.core.units import utc_text
from cordee.runs.folder import RunFolder
from cordee.runs.journal import JournalWriter
from cordee.telemetry.node.blocklog import BlockLogWriter, encode_events, encode_facts, encode_grid, encode_schema
from cordee.telemetry.node.catalogue import described
from cordee.telemetry.store.reader import Run, open_run

T0 = 1_700_000_000.0


class MadeTraining:
    """A training of two nodes with two ranks each.

    Args:
        parent: where the run goes.
    """

    def __init__(self, parent: Path) -> None:
        self.folder = RunFolder.create(parent, "made-20231114T221320Z-abcd")
        self.journal = JournalWriter(self.folder.journal, "supervisor-1", 1)
        self._log = BlockLogWriter(self.folder.telemetry, 1)
        self._offset = 0

    def log(self, rank: int, moment: float, step: int | None, attempt: int = 1, **values: float) -> None:
        """Log numbers of one rank."""
        named = {name.replace("__", "/"): value for name, value in values.items()}
        self._offset += 64
        self._log.append(encode_events(f"local-{rank // 2}", rank, attempt, 0, [(self._offset, moment, step, named)]))

    def train(
        self,
        steps: int,
        *,
        step_s: float = 1.0,
        save_s: float = 0.0,
        save_every: int = 20,
        noise: float = 0.02,
        told: bool = True,
        every: int = 1,
        attempt: int = 1,
        start: float = T0,
        first: int = 0,
        values: Sequence[str] = ("loss",),
        skew_s: float = 0.0,
    ) -> list[float]:
        """Log steps that take `step_s`, and `save_s` more where a checkpoint is saved after them; return the saves' ends."""
        random = np.random.default_rng(7)
        now, ends = start, []
        for step in range(first, first + steps):
            now += step_s * (1 + noise * float(random.standard_normal()))
            if step % every == 0:
                for rank in range(2):
                    self.log(rank, now + rank * skew_s, step, attempt, **dict.fromkeys(values, 2.0))
            if (step + 1) % save_every == 0:
                now += save_s
                ends.append(now)
                for rank in range(4) if told else ():
                    self.log(
                        rank,
                        now + rank * skew_s,
                        step,
                        attempt,
                        cordee__checkpoint_seconds=max(save_s, 0.3) - 0.01 * rank,
                        cordee__checkpoint_bytes=1e9,
                        cordee__checkpoint_blocking=1.0,
                    )
        return ends

    def begin(self, attempt: int, moment: float) -> None:
        """Let an attempt begin."""
        self.journal.append(
            "attempt_started", attempt=attempt, world_size=4, nodes=[], time=utc_text(moment), mono=moment
        )

    def see(self, step: int, moment: float) -> None:
        """Let the supervisor see a complete checkpoint."""
        self.journal.append("checkpoint_seen", step=step, name=f"step-{step:09d}", time=utc_text(moment))

    def sample(self, group: str, rates: dict[str, np.ndarray], devices: Sequence[Sequence[int | str]]) -> None:
        """Write one sample a second of metrics [second, device], the devices of each node as given."""
        metrics = [dict(described(name, "test")) for name in rates]
        for node, of_node in enumerate(devices):
            schema, record = encode_schema(f"local-{node}", group, 1.0, of_node, metrics)
            self._log.append(record)
            begin = sum(len(before) for before in devices[:node])
            for second in range(len(next(iter(rates.values())))):
                values = [rates[name][second, begin + at] for at in range(len(of_node)) for name in rates]
                self._log.append(encode_grid(schema, T0 + second, values))

    def lack(self, node: str, reason: str) -> None:
        """Let a node say why it tells nothing of shared storage."""
        self._log.append(encode_facts(node, "node", T0, {node: {}}, {"storage_write_bytes_per_second": reason}))

    def read(self) -> Run:
        """Return the run as a reader sees it."""
        assert self._log.flush()
        return open_run(self.folder.root)


@pytest.fixture
def training(tmp_path: Path) -> MadeTraining:
    return MadeTraining(tmp_path)
