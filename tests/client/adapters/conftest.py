"""A rank's channel, and programs that run as a rank would: with the run's node.zip on PYTHONPATH, and nothing else of ours."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.job.submit.bundle import write_node_zip
from cordee.wire.channel import ChannelReader, create_channel
from cordee.wire.facts import SourceFact

Rank = Callable[..., "Outcome"]


class Outcome:
    """What a rank printed, and what its channel holds.

    Attributes:
        values: `(step, values)` of each event.
        declared: what was said of metrics.
    """

    def __init__(self, done: subprocess.CompletedProcess[str], channel: Path) -> None:
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr
        reader = ChannelReader(channel)
        events, _ = reader.read(100_000)
        self.values = [(event[2], event[3]) for event in events]
        self.declared = [fact for _, fact in reader.told() if isinstance(fact, SourceFact)]
        self.step, self.dropped, self.attached = reader.step, reader.dropped, reader.attached

    @property
    def sources(self) -> dict[str, str]:
        return {one.name: one.source for one in self.declared if not one.also}


@pytest.fixture(scope="session")
def node_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("node-zip") / "node.zip"
    write_node_zip(target)
    return target


@pytest.fixture
def rank(node_zip: Path, tmp_path: Path) -> Rank:
    """Run a program as a rank: `rank(program, *folders on PYTHONPATH, adapters=..., variables...)`."""

    def run(
        program: str, *folders: Path, adapters: str = "wandb,tensorboard,mlflow", flags: str = "", **more: str
    ) -> Outcome:
        channel = Path(tempfile.mktemp(".channel", dir=tmp_path))
        create_channel(channel)
        env = {**os.environ, "CORDEE_CHANNEL": str(channel), "CORDEE_ADAPTERS": adapters, **more}
        env["PYTHONPATH"] = os.pathsep.join(map(str, (node_zip, *folders)))
        env.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=str(tmp_path))
        argv = [sys.executable, *flags.split(), "-c", program]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return Outcome(done, channel)

    return run
