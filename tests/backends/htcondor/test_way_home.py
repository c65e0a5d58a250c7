"""What a job on HTCondor sends home while it runs, and what it fetches from there."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.backends.htcondor.node.chirp import Chirp
from cordee.backends.htcondor.node.home import CheckpointsHome, WayHome
from cordee.runs.checkpoint import Checkpoint, CheckpointFinder
from cordee.runs.folder import RunFolder
from cordee.runs.state import RunState
from cordee.testing.patience import wait_until

from .chirp_server import ChirpServer

RUN = "t-20261128T120000Z-abcd"


class Places:
    """A run's folder here and at home, and what serves the one at home."""

    def __init__(self, base: Path) -> None:
        (base / "here").mkdir()
        (base / "home").mkdir()
        self.here, self.home = (RunFolder.create(base / name, RUN) for name in ("here", "home"))
        for folder in (self.here, self.home):
            folder.checkpoints.mkdir()
        self.server = ChirpServer(base / "home", base / "chirp.config")
        self.state = RunState(run=RUN)

    def connect(self) -> Chirp:
        return Chirp(str(self.server.folder.parent / "chirp.config"))


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    found = Places(tmp_path)
    with found.server:
        yield found


def way_home(places: Places) -> WayHome:
    return WayHome(places.here, lambda: places.state, places.connect)


def arrives(path: Path, content: bytes) -> None:
    wait_until(lambda: path.is_file() and path.read_bytes() == content, 20.0)


def test_what_grows_comes_home_and_the_rest_at_the_end(places):
    (places.here.journal / "supervisor-1.jsonl").write_bytes(b"one\n")
    (places.here.journal / "asked.jsonl").write_bytes(b"as it was\n")
    (places.home.journal / "client.jsonl").write_bytes(b"as it was\nand went on\n")
    way = way_home(places)
    way.start()
    arrives(places.home.journal / "supervisor-1.jsonl", b"one\n")
    with open(places.here.journal / "supervisor-1.jsonl", "ab") as file:
        file.write(b"two\n")
    (places.here.logs / "node 1-1.log").write_bytes(b"hello")  # a name that Chirp has to quote
    arrives(places.home.journal / "supervisor-1.jsonl", b"one\ntwo\n")
    arrives(places.home.logs / "node 1-1.log", b"hello")
    (places.here.telemetry / "1-1.blocks").write_bytes(b"t" * 100)
    way.close(10.0)
    assert (places.home.telemetry / "1-1.blocks").read_bytes() == b"t" * 100
    assert (places.home.journal / "client.jsonl").read_bytes() == b"as it was\nand went on\n"


def test_what_is_at_home_already_is_not_sent_again(places):
    for folder in (places.here, places.home):
        (folder.journal / "supervisor-1.jsonl").write_bytes(b"one\n")
    way = way_home(places)
    way.start()
    wait_until(lambda: "getdir" in places.server.asked, 20.0)
    assert "pwrite" not in places.server.asked
    way.close(10.0)


def test_an_access_point_that_was_away_gets_everything_once(places, monkeypatch):
    monkeypatch.setattr("cordee.backends.htcondor.node.home._AGAIN_S", 0.1)
    places.server.away = True
    way = way_home(places)
    (places.here.logs / "n-1.log").write_bytes(b"a" * 10)
    way.start()
    time.sleep(0.3)
    (places.here.logs / "n-1.log").write_bytes(b"a" * 20)
    places.server.away = False
    arrives(places.home.logs / "n-1.log", b"a" * 20)
    way.close(10.0)


def test_requests_are_fetched_and_gone_from_home(places):
    (places.home.requests / "cancel-1.json").write_text(json.dumps({"request": "cancel"}))
    (places.home.requests / ".cancel-2.json").write_text("half")
    way = way_home(places)
    way.start()
    arrives(places.here.requests / "cancel-1.json", b'{"request": "cancel"}')
    wait_until(lambda: not (places.home.requests / "cancel-1.json").exists(), 20.0)
    way.close(10.0)
    assert not (places.here.requests / ".cancel-2.json").exists()


def test_how_far_a_run_is_becomes_attributes_of_its_job(places):
    places.state = RunState(run=RUN, state="running", step=7, checkpoint='step-"5"')
    way = way_home(places)
    way.start()
    wait_until(lambda: "CordeeStep" in places.server.attributes, 20.0)
    way.close(10.0)
    assert places.server.attributes == {
        "CordeeState": '"running"',
        "CordeeStep": "7",
        "CordeeCheckpoint": '"step-\\"5\\""',
    }


class Finder(CheckpointFinder):
    """Finds what a test says is the newest."""

    def __init__(self) -> None:
        self.found: Checkpoint | None = None

    def glance(self) -> Checkpoint | None:
        return self.found

    def make(self, folder: Path, name: str, content: bytes) -> None:
        path = folder / name
        (path / "part").mkdir(parents=True)
        (path / "weights").write_bytes(content)
        (path / "part" / "0").write_bytes(b"")
        self.found = Checkpoint(str(path), name, int(name[5:]), path.stat().st_mtime_ns)


def test_the_newest_checkpoint_comes_home_whole_and_the_former_one_goes(places, monkeypatch):
    monkeypatch.setattr("cordee.backends.htcondor.node.home._EVERY_S", 0.05)
    finder, home = Finder(), places.home.checkpoints
    saves = CheckpointsHome(places.here, finder, "000000001-000000", places.connect)
    saves.start()
    for step in (1, 2):
        finder.make(places.here.checkpoints, f"step-{step}", bytes([step]) * 9_000_000)
        wait_until(lambda step=step: (home / f"step-{step}").is_dir(), 20.0)
        assert (home / f"step-{step}" / "weights").read_bytes() == bytes([step]) * 9_000_000
        assert (home / f"step-{step}" / "part" / "0").read_bytes() == b""
    wait_until(lambda: [path.name for path in home.iterdir()] == ["step-2"], 20.0)
    saves.close()


def test_a_checkpoint_that_changes_on_its_way_is_not_taken_for_one(places, monkeypatch):
    monkeypatch.setattr("cordee.backends.htcondor.node.home._EVERY_S", 0.05)
    finder = Finder()
    saves = CheckpointsHome(places.here, finder, "000000001-000000", places.connect)
    saves.start()
    finder.make(places.here.checkpoints, "step-1", b"x")
    path = places.here.checkpoints / "step-1" / "weights"
    real = saves._copy

    def changed(chirp: Chirp, source: Path, target: str) -> None:
        real(chirp, source, target)
        if source.name == "step-1" and len(path.read_bytes()) < 4:
            path.write_bytes(path.read_bytes() + b"x")

    monkeypatch.setattr(saves, "_copy", changed)
    arrives(places.home.checkpoints / "step-1" / "weights", b"xxxx")
    saves.close()


@pytest.mark.parametrize("config", ["", "127.0.0.1 1", "127.0.0.1 1 c"])
def test_a_starter_that_cannot_be_reached_is_an_os_error(tmp_path, config):
    (tmp_path / "config").write_text(config)
    with pytest.raises(OSError, match=r"host|refused"):
        Chirp(str(tmp_path / "config"))


def test_a_wrong_cookie_is_refused(places, tmp_path):
    host, port, _ = (tmp_path / "chirp.config").read_text().split()
    (tmp_path / "other").write_text(f"{host} {port} guessed")
    with pytest.raises(PermissionError):
        Chirp(str(tmp_path / "other"))
