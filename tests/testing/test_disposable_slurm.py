"""The disposable Slurm is real, private, survives what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from cordee.backends.slurm.node.commands import SlurmError, job_record
from cordee.core.errors import UsageError
from cordee.machine.processes import tree as processes
from cordee.testing import ports
from cordee.testing.cli import command
from cordee.testing.daemons import DisposableError, wait_until
from cordee.testing.ports import HIGHEST, LOWEST, free_ports
from cordee.testing.slurm import DisposableSlurm, DisposableSlurmError
from cordee.testing.slurm.configuration import SlurmShape, slurm_conf
from cordee.testing.slurm.files import CLAIMS, write_files
from support.disposable import as_ordinary_user, processes_of

SHAPE = {
    "nodes": 2,
    "cpus": 8,
    "memory_mb": 16000,
    "gpus": 0,
    "accounting": False,
    "partitions": {},
    "settings": {},
    "files": {},
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name; whatever lives in it is ended after the test."""
    base = Path(tempfile.mkdtemp(prefix="cordee-slurm-"))
    base.chmod(0o777)
    yield base / "slurm"
    try:
        DisposableSlurm.attach(base / "slurm").down()
    except UsageError:
        pass
    left = processes_of(base)
    processes.kill_all(left)
    shutil.rmtree(base)
    assert left == {}


def cordee(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cordee.faces.cli", *map(str, words)]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


def submit(*options: str, script: str = "sleep 1000") -> str:
    command = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap", script]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def running(job: str) -> bool:
    return (job_record(job) or {}).get("JobState") == "RUNNING"


def test_a_person_puts_it_up_uses_it_and_takes_it_down(folder):
    assert cordee("testing", "slurm", "up", folder, "--nodes", 2, "--gpus", 2).returncode == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    shell = f'eval "$({shlex.quote(sys.executable)} -m cordee.faces.cli testing slurm env {folder})" && '
    use = (
        shell
        + "sinfo --noheader --partition=normal --format='%D %t' && srun -N2 --gpus-per-node=2 printenv CUDA_VISIBLE_DEVICES"
    )
    used = subprocess.run(["bash", "-c", use], capture_output=True, text=True, check=True)
    assert used.stdout.split() == ["2", "idle", "0,1", "0,1"]
    document = json.loads(cordee("testing", "slurm", "env", folder, "--json").stdout)
    assert document["env"] == {"SLURM_CONF": f"{folder}/etc/slurm.conf"}
    again = cordee("testing", "slurm", "up", folder)
    assert again.returncode == 2
    assert "is up here already" in again.stderr
    assert json.loads(cordee("testing", "slurm", "down", folder, "--json").stdout)["folder"] == str(folder)
    assert not folder.exists()
    assert processes_of(folder.parent) == {}


def test_without_a_folder_it_lies_in_the_cache_folder(folder):
    cache = {"XDG_CACHE_HOME": str(folder)}
    document = json.loads(cordee("testing", "slurm", "up", "--nodes", 1, "--json", **cache).stdout)
    assert document["folder"] == f"{folder}/cordee/slurm"
    assert document["nodes"] == ["n1"]
    assert (
        cordee("testing", "slurm", "env", **cache).stdout == f"export SLURM_CONF={folder}/cordee/slurm/etc/slurm.conf\n"
    )
    assert cordee("testing", "slurm", "down", **cache).returncode == 0


def test_where_none_is_up_env_and_down_say_so(folder):
    for words in (["env"], ["down"], ["env", "--json"]):
        done = cordee("testing", "slurm", words[0], folder, *words[1:])
        assert done.returncode == 2
        assert "no disposable Slurm lies here" in (done.stdout if "--json" in words else done.stderr)


@pytest.mark.usefixtures("real")
def test_two_are_up_at_once_and_know_nothing_of_each_other(folder):
    with DisposableSlurm(folder, nodes=1) as one, DisposableSlurm(folder.with_name("other"), nodes=2) as other:
        assert one.command("sbatch", "--output=/dev/null", "--hold", "--wrap", "true")
        assert one.command("squeue", "--noheader", "--format=%A").strip() == "1"
        assert other.command("squeue", "--noheader", "--format=%A").strip() == ""
        assert len(other.states()) == 2


def test_ports_that_one_has_chosen_no_other_gets():
    with free_ports(3) as first:
        assert LOWEST <= first <= HIGHEST < 32768
        with pytest.raises(DisposableError, match="taken"):
            with free_ports(1, first + 2):
                pass
        with free_ports(3) as second:
            assert abs(first - second) >= 3


def test_the_port_of_a_daemon_that_is_stopped_for_a_moment_no_other_gets(monkeypatch):
    with free_ports(3) as first:
        pass
    monkeypatch.setattr(ports, "LOWEST", first)
    monkeypatch.setattr(ports, "HIGHEST", first + 63)
    with socket.create_server(("127.0.0.1", first + 2)):
        with pytest.raises(DisposableError, match="taken"):
            with free_ports(1):
                pass
    with free_ports(1) as again:
        assert again == first


def test_an_ordinary_user_can_have_one(folder):
    def use() -> None:
        cluster = DisposableSlurm(folder, nodes=2, gpus=2)
        cluster.up()
        try:
            printed = cluster.command("srun", "-N2", "bash", "-c", "id -u")
            assert printed.split() == [str(os.getuid())] * 2, printed
            cluster.kill_node("n2")
            assert cluster.heal() == ["n2 was dead"]
        finally:
            cluster.down()
        assert not folder.exists()

    as_ordinary_user(use)


@pytest.mark.usefixtures("real")
def test_a_controller_that_cannot_start_shows_its_log_and_leaves_nothing(folder):
    with pytest.raises(DisposableSlurmError) as caught:
        DisposableSlurm(folder, nodes=1, settings={"SelectType": "select/none_such"}).up()
    assert "slurmctld ended" in str(caught.value)
    assert "none_such" in str(caught.value)
    assert not folder.exists()


@pytest.mark.usefixtures("real")
def test_what_is_not_ready_in_time_shows_its_logs(folder):
    honest = {"SlurmdParameters": "numa_node_as_socket"}  # slurmd tells what this machine has, which is less
    with pytest.raises(DisposableSlurmError, match="not all nodes became idle in time") as caught:
        DisposableSlurm(folder, nodes=1, cpus=5000, settings=honest).up(timeout_s=5.0)
    assert "--- n1.log" in str(caught.value)
    assert "--- slurmctld.log" in str(caught.value)
    assert not folder.exists()


def test_what_a_killed_up_has_left_is_cleaned_by_down(folder):
    command = [sys.executable, "-m", "cordee.faces.cli", "testing", "slurm", "up", str(folder), "--nodes", "4"]
    starting = subprocess.Popen(command)
    assert wait_until((folder / "pid" / "n2").exists, 60)
    starting.kill()
    starting.wait()
    assert processes_of(folder)
    assert cordee("testing", "slurm", "up", folder).returncode == 2
    assert cordee("testing", "slurm", "down", folder).returncode == 0
    assert processes_of(folder) == {}
    assert not folder.exists()


@pytest.mark.gate
def test_one_that_a_process_has_put_up_for_itself_goes_with_it_even_when_that_is_killed(folder):
    program = "import sys, time; from pathlib import Path; from cordee.testing.slurm import DisposableSlurm\n"
    program += "with DisposableSlurm(Path(sys.argv[1]), nodes=1): print('up', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        process.kill()
    assert wait_until(lambda: not folder.exists(), 60)
    assert wait_until(lambda: processes_of(folder) == {}, 10)


@pytest.mark.usefixtures("real")
def test_a_dead_one_is_replaced(folder):
    first = DisposableSlurm(folder, nodes=1)
    first.up()
    for name in first.living():
        first._daemons.end([name], signal.SIGKILL)
    assert cordee("testing", "slurm", "env", folder).returncode == 2
    with DisposableSlurm(folder, nodes=1) as second:
        assert second.states() == {"n1": "IDLE"}


def test_a_folder_that_holds_something_else_is_refused(folder):
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="a folder of its own"):
        DisposableSlurm(folder).up()
    with pytest.raises(UsageError, match="no disposable Slurm lies here"):
        DisposableSlurm.attach(folder).down()
    assert (folder / "thesis.tex").exists()


@pytest.mark.parametrize("name", ["with blank", "x" * 80, "a,b", "50%"])
def test_a_folder_that_slurm_cannot_take_is_refused(name):
    with pytest.raises(UsageError, match="of this name"):
        DisposableSlurm(Path("/tmp") / name)


@pytest.mark.parametrize("shape", [{"nodes": 0}, {"gpus": -1}, {"cpus": 0}, {"nodes": 1000}])
def test_numbers_out_of_range_are_refused(shape):
    with pytest.raises(UsageError, match=next(iter(shape))):
        DisposableSlurm(Path("/tmp/none"), **shape)


def test_missing_packages_are_named_with_the_command_that_installs_them(folder, monkeypatch):
    monkeypatch.setattr("cordee.testing.daemons.shutil.which", lambda name, path: None)
    with pytest.raises(DisposableSlurmError) as caught:
        DisposableSlurm(folder, accounting=True).up()
    assert (
        caught.value.next
        == "sudo apt-get install mariadb-client-core mariadb-server-core munge slurm-client slurmctld slurmd slurmdbd"
    )
    assert not folder.exists()


def test_the_slurm_of_a_suite_is_found_in_the_cache_folder_with_its_plugins(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CORDEE_SLURM_SUITE", "trixie")
    usr = tmp_path / "cordee" / "slurm-programs" / "trixie" / "usr"
    for name in ("sbin/slurmctld-wlm", "sbin/munged", "bin/sinfo", "lib/any/slurm-wlm/libslurmfull.so"):
        (usr / name).parent.mkdir(parents=True, exist_ok=True)
        (usr / name).touch()
    cluster = DisposableSlurm(folder, accounting=True)
    write_files(cluster.folder, cluster.shape)
    found = {path.name: path.readlink() for path in Path(cluster.env["PATH"].split(os.pathsep)[0]).iterdir()}
    assert found == {
        "slurmctld": usr / "sbin/slurmctld-wlm",
        "munged": usr / "sbin/munged",
        "sinfo": usr / "bin/sinfo",
    }
    for name in ("slurm.conf", "slurmdbd.conf"):
        assert f"PluginDir={usr}/lib/any/slurm-wlm\n" in (cluster.folder / "etc" / name).read_text()
    assert "PATH" not in DisposableSlurm(folder, suite="").env


def test_what_is_no_name_of_a_suite_is_refused(folder):
    done = cordee("testing", "slurm", "up", folder, "--suite", "../x")
    assert done.returncode == 2
    assert "no Debian suite has such a name" in done.stderr
    assert "../x" in done.stderr
    assert "small letters, as trixie" in done.stderr
    assert not folder.exists()


def test_the_programs_of_a_suite_stand_before_the_path_of_the_shell_that_asked(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "cordee" / "slurm-programs" / "trixie" / "usr" / "lib" / "any" / "slurm-wlm").mkdir(parents=True)
    cluster = DisposableSlurm(folder, suite="trixie")
    write_files(cluster.folder, cluster.shape)
    CLAIMS.write(folder, cluster.shape)
    monkeypatch.setattr(DisposableSlurm, "living", lambda _: ["munged"])
    done = CliRunner().invoke(command, ["slurm", "env", str(folder)])
    conf = f"{folder}/etc/slurm.conf"
    assert done.stdout.splitlines() == [f"export SLURM_CONF={conf}", f'export PATH={folder}/programs:"$PATH"']


def test_settings_replace_lines_and_partitions_are_as_given(tmp_path):
    settings, partitions = {"SLURMDTIMEOUT": "77", "LaunchParameters": "x"}, {"big": {"MaxTime": "10"}}
    shape = SlurmShape(**{**SHAPE, "port": 13000, "settings": settings, "partitions": partitions})
    lines = slurm_conf(tmp_path, shape).splitlines()
    assert [line for line in lines if line.lower().startswith("slurmdtimeout")] == ["SLURMDTIMEOUT=77"]
    assert "LaunchParameters=x" in lines
    assert [line for line in lines if line.startswith("Partition")] == [
        "PartitionName=big Nodes=ALL State=UP MaxTime=10"
    ]


class TestFaults:
    """On the cluster that tests share."""

    @pytest.mark.campaign
    def test_a_killed_node_loses_everything_on_it_and_comes_back(self, slurm, tmp_path):
        started = tmp_path / "started"
        job = submit(
            "-N2", "-w", "n2,n3", script=f"srun -N2 bash -c 'setsid sleep 999 & touch {started}-$SLURMD_NODENAME; wait'"
        )
        assert wait_until(lambda: len(list(tmp_path.glob("started-*"))) == 2, 60)
        assert running(job)
        before = slurm.processes_of("n3")
        slurm.kill_node("n3")
        assert [
            pid for pid in before if Path(f"/proc/{pid}").exists() and processes.read_process(pid).state != "Z"
        ] == []
        assert slurm.processes_of("n2")
        assert "n3" not in slurm.living()
        assert wait_until(lambda: "NOT_RESPONDING" in slurm.states()["n3"], 90)
        slurm.start_node("n3")
        assert "NOT_RESPONDING" not in slurm.states()["n3"]

    def test_a_killed_slurmd_leaves_its_jobs_running(self, slurm, tmp_path):
        started = tmp_path / "started"
        job = submit("-N1", "-w", "n2", script=f"touch {started}; sleep 1000")
        assert wait_until(lambda: started.exists() and running(job), 60)
        slurm.kill_slurmd("n2")
        left = slurm.processes_of("n2")
        assert len(left) >= 2
        slurm.start_node("n2")
        assert left <= slurm.processes_of("n2")
        assert running(job)

    def test_a_drained_node_takes_no_jobs_until_it_is_resumed(self, slurm):
        slurm.drain("n1", "bad memory")
        assert "DRAIN" in slurm.states()["n1"]
        job = submit("-N1", "-w", "n1")
        assert wait_until(lambda: "bad memory" in slurm.command("sinfo", "-R"), 30)
        assert not running(job)
        slurm.resume("n1")
        assert wait_until(lambda: running(job), 60)

    @pytest.mark.campaign
    def test_jobs_outlive_a_controller_that_is_away(self, slurm):
        job = submit("-N1")
        assert wait_until(lambda: running(job), 60)
        slurm.stop_controller()
        with pytest.raises(SlurmError) as caught:
            slurm.command("squeue")
        assert caught.value.busy
        slurm.start_controller()
        assert running(job)

    def test_a_failing_prolog_drains_the_node(self, slurm):
        slurm.set_prolog("exit 1")
        submit("-N1", "-w", "n4")
        assert wait_until(lambda: "DRAIN" in slurm.states()["n4"], 60)
        slurm.set_prolog(None)

    def test_the_debug_partition_takes_nodes_from_normal_jobs_which_are_requeued(self, slurm):
        low = submit("-N4", "--exclusive", "--requeue")
        assert wait_until(lambda: running(low), 60)
        high = submit("-N4", "--exclusive", "-p", "debug", "-t", "5")
        assert wait_until(lambda: running(high), 60)
        assert (job_record(low) or {})["Restarts"] == "1"

    def test_healing_says_what_was_wrong_and_puts_it_right(self, slurm):
        slurm.drain("n1", "x")
        slurm.kill_node("n2")
        slurm.stop_controller()
        slurm._daemons.end(["munged"], signal.SIGKILL)
        assert slurm.heal() == ["munged was dead", "slurmctld was dead", "n2 was dead", "n1 was IDLE+DRAIN"]
        assert slurm.heal() == []

    def test_clearing_ends_jobs_in_every_state(self, slurm):
        submit("-N1")
        submit("--hold")
        submit("-N4", "--begin=now+1hour")
        slurm.clear()
        assert slurm.command("squeue", "--noheader") == ""

    def test_clearing_ends_a_job_of_several_components_as_a_whole(self, slurm):
        slurm.command("sbatch", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 1000")
        for _ in range(4):
            slurm.command(
                "sbatch", "--nodes=1", "--output=/dev/null", ":", "--nodes=1", ":", "--nodes=1", "--wrap=sleep 1000"
            )
        slurm.clear()
        assert slurm.command("squeue", "--noheader") == ""

    def test_an_unknown_node_is_refused(self, slurm):
        for method in (slurm.kill_node, slurm.start_node, slurm.resume, slurm.kill_slurmd):
            with pytest.raises(UsageError, match="no such node"):
                method("n9")


@pytest.mark.usefixtures("real")
def test_with_accounting_sacct_knows_a_job_and_sacctmgr_the_account(folder):
    with DisposableSlurm(folder, nodes=1, gpus=1, accounting=True) as cluster:
        cluster.command("srun", "-A", "research", "--comment=cordee:x", "--gpus-per-node=1", "true")
        assert wait_until(lambda: "COMPLETED" in cluster.command("sacct", "-n", "-X", "-o", "state"), 60)
        told = cluster.command("sacct", "-n", "-X", "-P", "-o", "account,comment,alloctres").strip()
        assert told.startswith("research|cordee:x|")
        assert "gres/gpu=1" in told
        assert "research" in cluster.command("sacctmgr", "-n", "-P", "show", "assoc", "format=account")


@pytest.mark.usefixtures("real")
def test_another_version_is_that_of_a_suite(folder):
    with DisposableSlurm(folder, nodes=2, suite="trixie") as cluster:
        assert cluster.command("sinfo", "--version").startswith("slurm-wlm 24.11")
        assert len(cluster.command("srun", "-N2", "hostname").split()) == 2
        cluster.kill_node("n2")
        assert cluster.heal() == ["n2 was dead"]


@pytest.mark.usefixtures("real")
def test_further_files_lie_beside_slurm_conf(folder):
    switches = {
        "topology.conf": "SwitchName=leaf1 Nodes=n1\nSwitchName=leaf2 Nodes=n2\nSwitchName=top Switches=leaf[1-2]\n"
    }
    with DisposableSlurm(folder, nodes=2, files=switches, settings={"TopologyPlugin": "topology/tree"}) as cluster:
        assert "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n2" in cluster.command("scontrol", "show", "topology")
