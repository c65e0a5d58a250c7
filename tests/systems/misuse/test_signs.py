"""Programs that are known by name, and work that looks like theirs; what trains, prepares or compiles is left alone."""

from __future__ import annotations

import pytest

from cordee.machine.tcp_sockets import TcpConnection
from cordee.systems.misuse.node.signs import LOOKS, MisuseSigns, Signs


class Host:
    """A /proc with one process that works from look to look, ten seconds apart."""

    def __init__(self, folder, name: str = "train", command: str = "./train", maps: str = "/lib/libc.so.6") -> None:
        self.folder, self.cpu_s, self.read, self.written = folder, 0.0, 0, 0
        task = folder / "7" / "task" / "7"
        task.mkdir(parents=True)
        (folder / "7" / "comm").write_text(name)
        (folder / "7" / "cmdline").write_text(command.replace(" ", "\0") + "\0")
        (folder / "7" / "maps").write_text(maps)
        self.signs = MisuseSigns(["nmap"], str(folder))

    def looks(
        self, cores: list[float], read: int = 0, written: int = 0, steps: bool = False, remote: str = ""
    ) -> Signs | None:
        found = None
        for at, share in enumerate([0.0, *cores]):
            self.cpu_s, self.read, self.written = self.cpu_s + share * 10, self.read + read, self.written + written
            ran, waited = int(self.cpu_s * 6e8), int(self.cpu_s * 4e8)  # it shares its cores with others
            (self.folder / "7" / "task" / "7" / "schedstat").write_text(f"{ran} {waited} 1\n")
            (self.folder / "7" / "io").write_text(f"rchar: {self.read}\nwchar: {self.written}\n")
            outside = [TcpConnection(1, 1, remote, 3333, 10, 10)] if remote else []
            found = self.signs.look([7], at * 10.0, steps, outside)
        return found


STEADY = [2.0] * (LOOKS + 1)


@pytest.mark.parametrize("name", ["xmrig", "john", "hashcat.bin", "cpuminer-avx2", "nmap", "XMRig"])
def test_a_known_name_is_told_at_once(tmp_path, name):
    found = Host(tmp_path, name).looks([])
    assert found is not None
    assert found.certain
    assert found.words[0] == f"known name: {name}"


def test_the_words_of_a_pool_are_told(tmp_path):
    found = Host(tmp_path, command="./train -o stratum+tcp://pool.example:3333").looks([])
    assert found is not None
    assert found.certain


def test_steady_work_without_anything_is_told_with_the_place_that_it_talks_to(tmp_path):
    found = Host(tmp_path).looks(STEADY, remote="203.0.113.5")
    assert found is not None
    assert not found.certain
    assert found.words == (
        "steady work on 2.0 cores",
        "reads next to nothing",
        "writes nothing",
        "tells of no steps",
        "has no numeric library",
        "always connected to one place outside: 203.0.113.5",
    )


@pytest.mark.parametrize(
    "about",
    [
        {"read": 100_000_000},
        {"written": 1_000_000},
        {"steps": True},
        {"cores": [2.0, 0.5, 1.0, 2.0, 0.2, 1.5, 2.0]},
        {"cores": [0.01] * 7},
        {"cores": [2.0] * 3},
    ],
)
def test_what_reads_writes_learns_rests_or_has_just_begun_is_left_alone(tmp_path, about):
    assert Host(tmp_path).looks(**{"cores": STEADY, **about}) is None


@pytest.mark.parametrize("maps", ["/x/libtorch_cpu.so", "/usr/lib/libopenblas.so.0", "/lib/libmpi.so.40"])
def test_what_has_a_numeric_library_is_left_alone(tmp_path, maps):
    assert Host(tmp_path, maps=f"7f00-7f01 r-xp {maps}").looks(STEADY) is None


@pytest.mark.parametrize("name", ["johnson", "my-xmrig-paper.py", "python3", "hydration"])
def test_names_that_only_look_like_it_are_left_alone(tmp_path, name):
    assert Host(tmp_path, name, f"./{name}").looks([]) is None


def test_a_process_that_is_gone_is_no_fault(tmp_path):
    assert MisuseSigns(proc=str(tmp_path)).look([1234], 0.0, False, ()) is None
