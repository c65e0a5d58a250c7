"""The disposable HTCondor pool is real, private, survives what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.machine.processes import tree as processes
from cordee.testing.daemons import DisposableError, wait_until
from cordee.testing.htcondor import DisposablePool, DisposablePoolError, programs
from cordee.testing.htcondor.configuration import PoolShape, condor_config
from cordee.testing.htcondor.programs import Programs
from support.disposable import as_ordinary_user, processes_of

DAEMONS = {"collector", "master", "negotiator", "schedd", "shared_port"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name; whatever lives in it is ended after the test."""
    base = Path(tempfile.mkdtemp(prefix="cordee-htcondor-"))
    base.chmod(0o777)
    yield base / "pool"
    try:
        DisposablePool.attach(base / "pool").down()
    except UsageError:
        pass
    left = processes_of(base)
    processes.kill_all(left)
    shutil.rmtree(base)
    assert left == {}


def cordee(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cordee.faces.cli", "testing", "htcondor", *map(str, words)]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)


class Job:
    """A shell script that a pool runs, with nothing of the folder that it is submitted from but what travels.

    Args:
        where: a new folder to submit it from.
        lines: more lines of the submit file.
    """

    def __init__(self, where: Path, script: str, *lines: str) -> None:
        where.mkdir(exist_ok=True)
        self.where = where
        program = where / "job.sh"
        program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        program.chmod(0o755)
        text = ["executable = job.sh", "should_transfer_files = YES", *lines]
        text += ["output = out", "error = err", "log = log", "request_memory = 64MB", "request_disk = 10MB", "queue"]
        (where / "job.sub").write_text("\n".join([*text, ""]))
        told = subprocess.run(
            ["condor_submit", "-terse", "job.sub"], cwd=where, capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stderr
        self.name = told.stdout.split()[0]

    def events(self) -> list[str]:
        """Return the numbers of the events in its log."""
        lines = (self.where / "log").read_text().split("...\n")
        return [event.split()[0] for event in lines if event.strip()]

    def runs(self) -> bool:
        return "001" in self.events()

    def ended(self) -> str:
        """Return what it printed, once it has ended."""
        assert wait_until(lambda: "005" in self.events(), 60), (self.where / "log").read_text()
        return (self.where / "out").read_text() + (self.where / "err").read_text()


@pytest.mark.usefixtures("real")
def test_a_person_puts_it_up_uses_it_and_takes_it_down(folder, tmp_path):
    (tmp_path / "secret").touch()
    up = cordee("up", folder, "--machines", 2, "--gpus", 2, "--hide", tmp_path)
    assert up.returncode == 0, up.stderr
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert os.getsid(int((folder / "pid" / "condor_master").read_text().split()[0])) != os.getsid(0)
    words = "executable=/bin/ls arguments=-a\\ $PWD output=out log=log request_gpus=2 should_transfer_files=yes"
    shell = f'eval "$({shlex.quote(sys.executable)} -m cordee.faces.cli testing htcondor env {folder})" && '
    use = f"{shell} condor_status -af Name GPUs && condor_submit {words} transfer_executable=no -queue 1 && condor_wait log"
    used = subprocess.run(["bash", "-c", use], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert used.returncode == 0, used.stderr
    assert sorted(used.stdout.splitlines()[:2])[0].startswith("slot1@node1@")
    assert [line.split()[1] for line in used.stdout.splitlines()[:2]] == ["2", "2"]
    assert (tmp_path / "out").read_text().split() == [".", ".."]
    document = json.loads(cordee("env", folder, "--json").stdout)
    assert document["schema"] == "cordee.testing.htcondor/1"
    assert document["env"]["CONDOR_CONFIG"] == f"{folder}/condor_config"
    assert document["env"]["PATH"].startswith(f"{folder}/bin:")
    assert all(path.name.startswith("condor_") for path in (folder / "bin").iterdir())
    again = cordee("up", folder)
    assert again.returncode == 2
    assert "is up here already" in again.stderr
    assert json.loads(cordee("down", folder, "--json").stdout)["folder"] == str(folder)
    assert not folder.exists()
    assert processes_of(folder.parent) == {}


def test_where_none_is_up_env_and_down_say_so(folder):
    for words in (["env"], ["down"], ["env", "--json"]):
        done = cordee(words[0], folder, *words[1:])
        assert done.returncode == 2
        assert "no disposable HTCondor pool lies here" in (done.stdout if "--json" in words else done.stderr)


def test_without_a_folder_it_lies_in_the_cache_folder(folder):
    done = cordee("env", "--json", XDG_CACHE_HOME=str(folder))
    assert json.loads(done.stdout)["error"]["given"] == f"{folder}/cordee/htcondor"


@pytest.mark.usefixtures("real")
def test_one_that_a_process_has_put_up_for_itself_goes_with_it_even_when_that_is_killed(folder):
    program = "import sys, time; from pathlib import Path; from cordee.testing.htcondor import DisposablePool\n"
    program += "with DisposablePool(Path(sys.argv[1]), machines=1): print('up', flush=True); time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"up\n"
        process.kill()
    assert wait_until(lambda: not folder.exists(), 60)
    assert wait_until(lambda: processes_of(folder) == {}, 10)


@pytest.mark.usefixtures("real")
def test_two_are_up_at_once_and_know_nothing_of_each_other(folder, monkeypatch):
    with DisposablePool(folder, machines=1) as one:
        for name, value in one.env.items():
            monkeypatch.setenv(name, value)
        with DisposablePool(folder.with_name("other"), machines=2) as other:
            assert other.living() == sorted([*DAEMONS, "node1", "node2", "procd"])
            assert len(other.command("condor_status", "-af", "Name").split()) == 2
            assert len(one.command("condor_status", "-af", "Name").split()) == 1
        assert "node1" in one.living()


@pytest.mark.usefixtures("real")
def test_what_a_killed_up_has_left_is_cleaned_by_down(folder):
    command = [sys.executable, "-m", "cordee.faces.cli", "testing", "htcondor", "up", str(folder)]
    starting = subprocess.Popen(command)
    assert wait_until((folder / "pid" / "condor_master").exists, 60)
    starting.kill()
    starting.wait()
    assert processes_of(folder)
    assert cordee("up", folder).returncode == 2
    assert cordee("down", folder).returncode == 0
    assert processes_of(folder) == {}
    assert not folder.exists()


@pytest.mark.usefixtures("real")
def test_jobs_that_do_not_want_to_end_go_with_it(folder, tmp_path, monkeypatch):
    with DisposablePool(folder, machines=1, hidden=[tmp_path]) as one:
        for name, value in one.env.items():
            monkeypatch.setenv(name, value)
        script = "trap '' TERM QUIT; setsid sh -c 'cd /; sleep 991; true' & sh -c 'setsid sleep 992 & sleep 993'"
        job = Job(tmp_path / "job", script)
        assert wait_until(lambda: job.runs() and len(one.processes_of("node1")) >= 6, 60)
        left = one.processes_of("node1")
    alive = [processes.read_process(pid) for pid in left]
    assert [found for found in alive if found is not None and found.state != "Z"] == []


@pytest.mark.usefixtures("real")
def test_several_folders_are_hidden_and_a_job_that_would_see_one_does_not_run(folder, tmp_path, monkeypatch):
    places = [tmp_path / name for name in ("a b", "c'd", "c'd/within", "gone")]
    for place in places:
        place.mkdir()
        (place / "secret").touch()
    with DisposablePool(folder, machines=1, hidden=places) as one:
        for name, value in one.env.items():
            monkeypatch.setenv(name, value)
        job = Job(
            tmp_path / "job", f"""ls -A "{places[0]}" "{places[1]}" "{places[3]}" | wc -l; ls "{tmp_path}" | wc -l"""
        )
        assert job.ended().split() == ["5", "4"]
        shutil.rmtree(places[3])
        job = Job(tmp_path / "refused", "echo ran")
        assert wait_until(lambda: "021" in job.events(), 60)
        assert "could not be hidden" in (job.where / "log").read_text()
        assert "ran" not in "".join(path.read_text() for path in job.where.glob("out"))


@pytest.mark.usefixtures("real")
def test_a_dead_one_is_replaced(folder):
    first = DisposablePool(folder, machines=1)
    first.up()
    processes.kill_all(processes_of(folder))
    assert wait_until(lambda: not first.living(), 30)
    assert cordee("env", folder).returncode == 2
    with DisposablePool(folder, machines=1) as second:
        assert "node1" in second.living()


@pytest.mark.usefixtures("real")
def test_a_master_that_cannot_start_shows_its_words_and_leaves_nothing(folder):
    with pytest.raises(DisposablePoolError, match="condor_master ended") as caught:
        DisposablePool(folder, machines=1, settings={"SEC_DEFAULT_AUTHENTICATION": "NONE_SUCH", "LOG": "/none"}).up()
    assert "/none" in str(caught.value)
    assert not folder.exists()


@pytest.mark.usefixtures("real")
def test_what_is_not_ready_in_time_shows_its_logs(folder):
    with pytest.raises(DisposablePoolError, match="it did not take jobs in time") as caught:
        DisposablePool(folder, machines=1, settings={"STARTD1": "/bin/false"}).up(timeout_s=3.0)
    assert "--- MasterLog" in str(caught.value)
    assert not folder.exists()


@pytest.fixture(scope="module")
def open_cache() -> Iterator[Path]:
    """A cache folder with HTCondor's programs that all users can read."""
    found = programs.fetch().release.parent
    fetched = found == programs.PACKAGES.folder
    cache = Path(tempfile.mkdtemp(prefix="cordee-programs-"))
    cache.chmod(0o755)
    if fetched:  # into a home that is closed to others
        copied = cache / found.relative_to(found.parents[2])
        shutil.copytree(found, copied, symlinks=True)
        programs.PACKAGES.patch(copied, copied)
    yield cache
    shutil.rmtree(cache)


@pytest.mark.usefixtures("real")
def test_an_ordinary_user_can_have_one(folder, open_cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(open_cache))
    hidden = folder.parent / "hidden"
    hidden.mkdir()
    hidden.chmod(0o777)

    def use() -> None:
        mine = DisposablePool(folder, machines=2, gpus=1, hidden=[hidden])
        mine.up()
        try:
            os.environ.update(mine.env)
            job = Job(hidden / "job", f"id -u; ls {hidden}; echo came > back", "transfer_output_files = back")
            assert job.ended() == f"{os.getuid()}\n"
            assert (hidden / "job" / "back").read_text() == "came\n"
            lost = Job(hidden / "lost", "setsid sleep 999 & sleep 999", 'requirements = regexp("node2", Name)')
            assert wait_until(lambda: lost.runs() and len(mine.processes_of("node2")) >= 5, 60)
            mine.kill_machine("node2")
            assert mine.processes_of("node2") == set()
            assert mine.heal() == ["node2 was dead"]
        finally:
            mine.down()
        assert not folder.exists()

    as_ordinary_user(use)


@pytest.mark.usefixtures("real")
def test_another_user_of_the_machine_is_not_let_in(folder, open_cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(open_cache))
    with DisposablePool(folder, machines=1) as pool:
        conf = folder.parent / "conf"
        conf.write_text(pool.conf.read_text())
        program = pool.commands / "condor_status"
        asked = [str(Path(os.readlink(pool.folder / "programs" / program.name)))]

        def ask() -> None:
            told = subprocess.run(asked, env={"CONDOR_CONFIG": str(conf)}, capture_output=True, text=True, check=False)
            assert "Permission denied" in told.stderr, told

        if os.getuid() == 0:
            as_ordinary_user(ask)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert f"FS_LOCAL_DIR = {folder}/" in conf.read_text()


def test_a_folder_that_holds_something_else_is_refused(folder, monkeypatch):
    monkeypatch.setattr(programs, "fetch", lambda: Programs(*[Path("/none")] * 4))
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="a folder of its own"):
        DisposablePool(folder).up()
    with pytest.raises(UsageError, match="no disposable HTCondor pool lies here"):
        DisposablePool.attach(folder).down()
    assert (folder / "thesis.tex").exists()


@pytest.mark.parametrize("name", ["with blank", "x" * 130, "a,b", "50%"])
def test_a_folder_that_htcondor_cannot_take_is_refused(name):
    with pytest.raises(UsageError, match="of this name"):
        DisposablePool(Path("/tmp") / name)


@pytest.mark.parametrize("shape", [{"machines": 0}, {"gpus": -1}, {"cpus": 0}, {"machines": 1000}, {"disk_mb": 0}])
def test_numbers_out_of_range_are_refused(shape):
    with pytest.raises(UsageError, match=next(iter(shape))):
        DisposablePool(Path("/tmp/none"), **shape)


def test_what_jobs_need_cannot_be_hidden_from_them(folder, monkeypatch):
    monkeypatch.setattr(programs, "fetch", lambda: Programs(*[Path("/opt/none")] * 4))
    for hidden in (folder.parent, Path("/"), Path("/opt")):
        with pytest.raises(UsageError, match="jobs need what lies in a folder"):
            DisposablePool(folder, hidden=[hidden]).up()
    with pytest.raises(UsageError, match="a folder that is there"):
        DisposablePool(folder, hidden=[folder.parent / "none"]).up()
    assert not folder.exists()


def test_where_no_user_namespace_can_be_made_it_says_so(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "fetch", lambda: Programs(*[Path("/none")] * 4))
    (tmp_path / "unshare").write_text("#!/bin/sh\necho unshare: Operation not permitted >&2; exit 1\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(DisposablePoolError, match="user namespaces, and none can be made here: unshare"):
        DisposablePool(folder, hidden=[tmp_path]).up()
    assert not folder.exists()


def test_settings_replace_lines(tmp_path):
    numbers = {"machines": 1, "cpus": 3, "memory_mb": 100, "disk_mb": 2, "gpus": 0, "port": 13000}
    shape = PoolShape(**numbers, hidden=(), settings={"UPDATE_INTERVAL": "77"})
    lines = condor_config(tmp_path, shape, Programs(*[Path("/opt")] * 4)).splitlines()
    assert [line for line in lines if line.startswith("UPDATE_INTERVAL")][-1] == "UPDATE_INTERVAL = 77"
    assert "NODE1.DISK = 2048" in lines
    assert "IN_HIGHPORT = 13063" in lines


class TestPrograms:
    @pytest.fixture(autouse=True)
    def _nothing_there(self, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(shutil, "which", lambda name, path=None: self.where(name, path))
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        monkeypatch.setenv("PATH", str(self.bin))

    def where(self, name: str, path: str | None = None) -> str | None:
        found = [Path(folder) / name for folder in (str(self.bin) if path is None else path).split(os.pathsep)]
        return next((str(one) for one in found if one.exists() and one.parent == self.bin), None)

    def make(self, name: str, script: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.bin / name).chmod(0o755)

    def test_those_on_the_path_are_used_but_not_the_wrappers_of_a_pool(self, tmp_path):
        assert programs.find() is None
        for name in ("condor_master", "condor_submit"):
            self.make(name, "true")
        (tmp_path / "libexec" / "condor").mkdir(parents=True)
        (tmp_path / "libexec" / "condor" / "condor_chirp").touch()
        assert programs.find() == Programs(tmp_path, self.bin, self.bin, tmp_path / "libexec" / "condor")
        (tmp_path / "pool.json").touch()
        assert programs.find() is None

    def test_where_packages_cannot_be_fetched_it_says_what_is_missing(self):
        with pytest.raises(DisposableError, match="cannot be fetched") as caught:
            programs.fetch()
        assert caught.value.given == "not found: apt-get, dpkg-deb"
        assert "condor_master" in caught.value.next

    def test_where_apt_has_no_debian_archive_it_says_so(self):
        self.make("dpkg-deb", "true")
        self.make("apt-get", "echo http://archive.test/ubuntu/")
        with pytest.raises(DisposableError, match="no Debian archive") as caught:
            programs.fetch()
        assert caught.value.given == "http://archive.test/ubuntu/"

    def test_what_apt_says_when_it_fails_is_shown_and_nothing_is_left(self):
        self.make("dpkg-deb", "true")
        self.make(
            "apt-get",
            'case $1 in indextargets) echo http://x.test/debian;; *) echo "E: no network" >&2; exit 100;; esac',
        )
        with pytest.raises(DisposableError, match="E: no network"):
            programs.fetch()
        assert [path.name for path in programs.PACKAGES.folder.parent.iterdir()] == [".trixie.lock"]


class TestOnThePool:
    """On the pool that tests share; its jobs do not see what tests write."""

    def test_a_job_runs_elsewhere_and_its_output_comes_back(self, htcondor, tmp_path):
        (tmp_path / "given").write_text("mine")
        script = f"ls -A {tmp_path} {tmp_path.parent}; cat given; echo; grep Cap[PE] /proc/self/status; mkdir run; cp given run"
        lines = ("transfer_input_files = ../given", "transfer_output_files = run")
        job = Job(tmp_path / "job", script, *lines)
        said = job.ended()
        assert "No such file" in said
        assert f"{tmp_path}:" not in said
        assert "mine" in said
        assert [line.split()[1].strip("0") for line in said.splitlines() if line.startswith("Cap")] == ["", ""]
        assert (tmp_path / "job" / "run" / "given").read_text() == "mine"

    def test_a_job_talks_to_its_access_point_by_chirp(self, htcondor, tmp_path):
        chirp = '"$(dirname "$_CONDOR_BIN")"/libexec/condor/condor_chirp'
        job = Job(tmp_path / "job", f"echo live > x; {chirp} put -mode cwa x wire; sleep 1000", "+WantIOProxy = true")
        assert wait_until(lambda: (job.where / "wire").exists() and (job.where / "wire").read_text() == "live\n", 60)

    def test_the_first_process_of_a_job_gets_the_signal_that_evicts_it(self, htcondor, tmp_path):
        script = '[ -e asked ] && exit 0; trap "echo asked > asked; exit 0" TERM; while :; do sleep 0.1; done'
        lines = ("when_to_transfer_output = ON_EXIT_OR_EVICT", "transfer_output_files = asked")
        job = Job(tmp_path / "job", script, *lines)
        assert wait_until(job.runs, 60)
        time.sleep(0.5)  # the shell sets its trap; one that is evicted before has no output, which is another story
        subprocess.run(["condor_vacate_job", job.name], check=True, capture_output=True)
        job.ended()
        assert (job.where / "asked").read_text() == "asked\n"
        assert job.events().count("001") == 2

    def test_a_killed_machine_loses_everything_on_it_stays_off_and_comes_back(self, htcondor, tmp_path):
        job = Job(tmp_path / "job", "setsid sleep 999 & sleep 999", 'requirements = regexp("node1", Name)')
        assert wait_until(lambda: job.runs() and len(htcondor.processes_of("node1")) >= 5, 60)
        before = htcondor.processes_of("node1")
        htcondor.kill_machine("node1")
        alive = [processes.read_process(pid) for pid in before]
        assert [one for one in alive if one is not None and one.state != "Z"] == []
        assert htcondor.processes_of("node2")
        assert wait_until(lambda: "022" in job.events(), 60)
        time.sleep(2)  # the master has started it again by now, and it waits
        assert "node1" not in htcondor.living()
        htcondor.start_machine("node1")
        assert "node1" in htcondor.living()

    @pytest.mark.campaign
    def test_a_job_of_a_lost_machine_runs_again_on_another_when_its_lease_is_over(self, htcondor, tmp_path):
        job = Job(tmp_path / "job", "sleep 8; echo $_CONDOR_SCRATCH_DIR", "job_lease_duration = 20")
        assert wait_until(job.runs, 60)
        lost = next(name for name in htcondor.machine_names if len(htcondor.processes_of(name)) > 1)
        htcondor.kill_machine(lost)
        other = next(name for name in htcondor.machine_names if name != lost)
        assert wait_until(lambda: "024" in job.events(), 60)
        assert f"/execute/{other}/" in job.ended()

    def test_a_job_goes_on_while_the_schedd_is_dead_and_comes_back(self, htcondor, tmp_path):
        job = Job(tmp_path / "job", "sleep 8; echo once")
        assert wait_until(job.runs, 60)
        htcondor.kill_schedd()
        assert wait_until(lambda: "schedd" in htcondor.living(), 60)
        htcondor.wait_ready()
        assert job.ended() == "once\n"
        assert job.events().count("001") == 1

    def test_clearing_ends_jobs_in_every_state(self, htcondor, tmp_path):
        running = Job(tmp_path / "one", "sleep 999", 'requirements = regexp("node2", Name)')
        Job(tmp_path / "two", "sleep 999", "hold = true")
        Job(tmp_path / "three", "sleep 999", "request_cpus = 64")
        assert wait_until(running.runs, 60)
        htcondor.kill_machine("node2")
        htcondor.clear()
        assert htcondor.command("condor_q", "-af", "ClusterId") == ""

    def test_healing_says_what_was_wrong_and_puts_it_right(self, htcondor):
        htcondor.kill_machine("node2")
        assert htcondor.heal() == ["node2 was dead"]
        assert htcondor.heal() == []

    def test_a_machine_that_it_has_not_is_refused(self, htcondor):
        with pytest.raises(UsageError, match="no such machine"):
            htcondor.kill_machine("node7")
