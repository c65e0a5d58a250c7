"""`--environment` of srun, sbatch and salloc: the SPANK plugin, compiled and run with real jobs."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordee.job.submit.bundle import write_node_zip
from cordee.systems.environments import spank_install
from cordee.testing.images import busybox, busybox_root, squashfs_of
from cordee.testing.oci import LayerEntry, OciLayout, folder, link
from cordee.testing.patience import wait_until
from cordee.testing.slurm import DisposableSlurm
from cordee.testing.slurm.daemons import clean_environment, packages_of
from cordee.testing.slurm.life import SUITE
from support.open_python import OpenPython

NAMESPACE = "readlink /proc/self/ns/mnt"


@pytest.fixture(scope="module")
def plugin() -> Iterator[Path]:
    """The plugin, and the zip for nodes beside it, where every user can load them."""
    with tempfile.TemporaryDirectory(prefix="cordee-plugin-") as name:
        Path(name).chmod(0o755)
        suite = os.environ.get(SUITE)
        include = [str(packages_of(suite).fetch() / "usr" / "include")] if suite else []
        spank_install.build(Path(name) / spank_install.LIBRARY, include=include)
        write_node_zip(Path(name) / spank_install.NODE_ZIP)
        (Path(name) / spank_install.NODE_ZIP).chmod(0o644)
        yield Path(name) / spank_install.LIBRARY


@pytest.fixture(scope="module")
def line(plugin: Path, open_to_all: OpenPython) -> str:
    words = [
        f"python={open_to_all.executable}",
        f"cordee={open_to_all.source}",
        f"node_cordee={plugin.with_name(spank_install.NODE_ZIP)}",
    ]
    return spank_install.plugstack_line(plugin, [*words, "timeout_s=30"])


@pytest.fixture(scope="module")
def cluster(line: str) -> Iterator[DisposableSlurm]:
    where = Path(tempfile.mkdtemp(prefix="cordee-spank-"))
    with DisposableSlurm(where, nodes=2, files={"plugstack.conf": line + "\n"}) as up:
        yield up


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    """A folder that every user can read, with the root `box` and `box.sqsh` of the same."""
    with tempfile.TemporaryDirectory(prefix="cordee-images-") as name:
        where = Path(name)
        where.chmod(0o755)
        tool = busybox_root(where / "box") / "opt" / "tool"
        tool.write_text("#!/bin/sh\necho the tool inside\n")
        tool.chmod(0o755)
        squashfs_of(where / "box", where / "box.sqsh")
        yield where


class Site:
    """A folder in which a person works on the cluster."""

    def __init__(self, cluster: DisposableSlurm, where: Path, images: Path) -> None:
        self.cluster, self.folder, self.images = cluster, where, images
        self.env = {**clean_environment(), **cluster.env, "EDF_PATH": str(where / "edf")}

    def edf(self, text: str = "", name: str = "env.toml", image: str = "box") -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'image = "{self.images}/{image}"\n{text}')
        return path

    def call(self, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Slurm here, to its end."""
        return subprocess.run(
            argv, cwd=self.folder, env={**self.env, **env}, capture_output=True, text=True, check=False, timeout=60
        )

    def out(self, *argv: str, **env: str) -> str:
        """Return what a command prints that has to succeed."""
        done = self.call(*argv, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def batch(self, script: str, *options: str) -> str:
        """Submit a script, wait for it and return what it printed."""
        (self.folder / "job.sh").write_text(script)
        job = self.out("sbatch", "--parsable", "--output=out", "--error=err", *options, "job.sh").strip()
        until(lambda: "JobState=COMPLETED" in self.out("scontrol", "show", "job", job), "the script did not end well")
        return (self.folder / "out").read_text()

    def start(self, *argv: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def jobs(self) -> str:
        return self.call("squeue", "--noheader").stdout


@pytest.fixture
def site(cluster: DisposableSlurm, images: Path, tmp_path: Path) -> Iterator[Site]:
    yield Site(cluster, tmp_path, images)
    cluster.clear()
    until(lambda: holders() == [], "a container is left")
    assert [mount for mount in Path("/proc/self/mountinfo").read_text().splitlines() if "cordee-images" in mount] == []


def processes_with(*marks: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if all(mark in words for mark in marks) and int(process.name) != os.getpid():
            found.append(int(process.name))
    return found


def holders() -> list[int]:
    """The processes that hold containers of this module's jobs: all that run the engine from a plugin."""
    return processes_with("\0hold\0", "\0--plain\0")


def until(condition: Callable[[], object], problem: str, timeout_s: float = 20.0) -> None:
    wait_until(condition, timeout_s, said=lambda: problem)


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_tasks_on_two_nodes_run_in_the_environment_of_a_path_or_a_name(site):
    site.edf('workdir = "/opt"\n[env]\nGREETING = "from the EDF"\n', name="edf/box.toml")
    script = 'echo "$SLURMD_NODENAME $(cat /etc/os-release | head -1) $PWD $GREETING"'
    for given in ("box", str(site.folder / "edf" / "box.toml"), "./edf/box.toml"):
        said = site.out("srun", "-N2", f"--environment={given}", "sh", "-c", script)
        assert sorted(said.splitlines()) == [f'n{node} NAME="busybox" /opt from the EDF' for node in (1, 2)]


def test_eight_tasks_of_a_node_share_one_container_and_nodes_have_their_own(site):
    site.edf()
    # All tasks see the file of the first before any ends, so they are in one container at one time.
    script = f"touch /tmp/$SLURM_LOCALID; until [ $(ls /tmp | wc -l) = 8 ]; do :; done; {NAMESPACE}"
    spaces = site.out("srun", "-N2", "--ntasks-per-node=8", "--environment=./env.toml", "sh", "-c", script).split()
    assert sorted(spaces.count(space) for space in set(spaces)) in ([8, 8], [16])
    assert os.readlink("/proc/self/ns/mnt") not in spaces


def test_a_squashfs_image_is_entered(site):
    site.edf(image="box.sqsh")
    assert "busybox" in site.out("srun", "--environment=./env.toml", "cat", "/etc/os-release")


def test_variables_of_the_edf_go_before_those_of_the_host_and_slurms_stay(site):
    site.edf('[env]\nA = "the EDF\'s \\"a\\"\\nand more"\nGONE = \'\'\n')
    script = 'printf "%s|%s|%s|%s" "$A" "${GONE-unset}" "$KEPT" "$SLURM_NTASKS"'
    said = site.out("srun", "-n1", "--environment=./env.toml", "sh", "-c", script, A="host", GONE="host", KEPT="host")
    assert said == 'the EDF\'s "a"\nand more|unset|host|1'


def test_the_environment_travels_without_the_callers_variables(site):
    site.edf('[env]\nA = "1"\n')
    assert site.out("srun", "--export=NONE", "--environment=./env.toml", "sh", "-c", "echo $A; id -u").split()[0] == "1"


def test_a_command_is_looked_up_where_the_container_has_it(site):
    host = site.folder / "bin"
    host.mkdir()
    (host / "tool").write_text("#!/bin/sh\necho the tool of the host\n")
    (host / "tool").chmod(0o755)
    site.edf('[env]\nPATH = "/opt:/bin"\n')
    assert (
        site.out("srun", "--environment=./env.toml", "tool", PATH=f"{host}:{os.environ['PATH']}") == "the tool inside\n"
    )


def test_variables_workdir_and_entrypoint_of_an_image_hold_below_the_edf(site):
    layer = [
        folder("bin"),
        *(folder(name) for name in ("dev", "proc", "sys", "tmp", "etc", "opt", "run")),
        LayerEntry("bin/busybox", busybox().read_bytes(), mode=0o755),
        *(link(f"bin/{name}", "busybox") for name in ("sh", "env", "pwd")),
    ]
    config = {
        "Env": ["PATH=/bin", "A=image", "B=image", "SLURM_PROCID=image"],
        "WorkingDir": "/opt",
        "Entrypoint": ["/bin/sh", "-c", 'echo "in front"; exec "$0" "$@"'],
    }
    layout = OciLayout(site.folder / "layout")
    layout.add([layer], config=config, tag="v1")
    archive = layout.archive(site.folder / "image.tar")
    (site.folder / "env.toml").write_text(f'image = "oci-archive:{archive}"\nentrypoint = true\n[env]\nA = "edf"\n')
    script = 'echo "$A $B $C $SLURM_PROCID $PWD $1"'
    said = site.out(
        *("srun", "-n1", "--environment=./env.toml", "sh", "-c", script, "x", "two words"),
        **{"A": "host", "B": "host", "C": "host", "EDF_IMAGESTORE": str(site.folder / "store")},
    )
    assert said == "in front\nedf image host 0 /opt two words\n"


def test_exit_codes_are_those_of_the_command(site):
    site.edf()
    assert site.call("srun", "--environment=./env.toml", "sh", "-c", "exit 7").returncode == 7
    missing = site.call("srun", "--environment=./env.toml", "no-such-command")
    assert missing.returncode != 0
    assert "no-such-command: No such file or directory" in missing.stderr


def test_a_bad_environment_fails_at_submission_in_words_and_queues_nothing(site):
    site.edf("imag = 1\nworkdir = 3\n")
    for command in (["srun", "true"], ["sbatch", "--wrap=true"], ["salloc", "true"]):
        bad = site.call(command[0], "--environment=./env.toml", *command[1:])
        assert bad.returncode != 0
        assert "env.toml:2: error: an EDF has no key imag" in bad.stderr
        assert "env.toml:3" in bad.stderr
        gone = site.call(command[0], "--environment=/no/such.toml", *command[1:])
        assert gone.returncode != 0
        assert "there is no file /no/such.toml" in gone.stderr
    site.edf(image="nowhere.sqsh")
    assert "nowhere.sqsh" in site.call("srun", "--environment=./env.toml", "true").stderr
    assert site.jobs() == ""


def test_what_only_a_node_can_see_ends_the_step_and_names_node_and_cause(site):
    site.edf('mounts = ["/no/such/folder:/data"]\n')
    done = site.call("srun", "-N2", "--environment=./env.toml", "true")
    assert done.returncode == 125
    for node in ("n1", "n2"):
        assert f"node {node}: no container: the source of a mount does not exist: /no/such/folder" in done.stderr
    assert set(site.cluster.states().values()) <= {"IDLE", "COMPLETING", "IDLE+COMPLETING"}


def test_a_missing_working_directory_is_named(site):
    site.edf('workdir = "/no/such"\n')
    done = site.call("srun", "--environment=./env.toml", "true")
    assert done.returncode == 125
    assert "/no/such" in done.stderr


def test_a_thousand_mounts_are_carried_and_made(site):
    sources = [site.folder / f"{index:0150d}" for index in range(1000)]
    for source in sources:
        source.mkdir()
    site.edf("mounts = [" + ",".join(f'"{source}:/data/{source.name}"' for source in sources) + "]\n")
    assert site.out("srun", "-N2", "--environment=./env.toml", "sh", "-c", "ls /data | wc -l").split() == [
        "1000",
        "1000",
    ]


def test_a_batch_script_runs_inside(site):
    site.edf('[env]\nA = "1"\n')
    said = site.batch(
        "#!/bin/sh\n#SBATCH --environment=./env.toml\necho $0 $A; cat /etc/os-release; command -v srun || true\n"
    )
    assert "slurm_script 1" in said
    assert 'NAME="busybox"' in said
    assert "/srun" not in said


def test_srun_in_a_batch_script_inherits_and_can_have_another_or_none(site):
    (site.folder / "host.toml").write_text('mounts = ["/etc:/mnt"]\n')
    box = site.edf(name="box.toml")
    where = "sh -c 'test -e /mnt/passwd && echo mounted || cat /etc/os-release'"
    said = site.batch(
        "#!/bin/sh\n#SBATCH --environment=./host.toml\n#SBATCH -n1\n"
        f"rm host.toml; srun {where}\nsrun --export=NONE {where}\n"
        f"echo other; srun --environment={box} {where}; echo none; srun --environment= {where}\n"
    )
    inherited, _, rest = said.partition("other\n")
    other, _, none = rest.partition("none\n")
    assert inherited == "mounted\nmounted\n"
    assert 'NAME="busybox"' in other
    assert 'NAME="busybox"' not in none
    assert "mounted" not in none


def test_srun_under_salloc_inherits_and_the_shell_stays_outside(site):
    edf = site.edf()
    # The file is read where the job is submitted, and never again.
    command = f"{NAMESPACE}; mv {edf} {edf}.gone; srun {NAMESPACE}"
    said = site.out("salloc", "--environment=./env.toml", "sh", "-c", command).split()
    assert said[0] == os.readlink("/proc/self/ns/mnt")
    assert said[1] != said[0]


def test_a_job_that_is_submitted_from_inside_another_begins_outside(site):
    site.edf()
    submit = "sbatch --parsable -o inner --wrap 'env; touch ended'"
    site.out("salloc", "-N1", "--environment=./env.toml", "sh", "-c", submit)
    until((site.folder / "ended").exists, "the inner job did not run")
    assert "SLURM_CORDEE" not in (site.folder / "inner").read_text()


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_parts_of_a_heterogeneous_step_have_one_environment_and_their_own_commands(site):
    site.edf()
    where = ["sh", "-c", "grep -c busybox /etc/os-release"]
    parts = ["srun", "--environment=./env.toml", "-n1", *where, ":", "-n1", "head", "-n1", "/etc/os-release"]
    allocate = ["salloc", "--quiet", "-n1", ":", "-n1"]
    assert sorted(site.out(*allocate, *parts).splitlines()) == ["3", 'NAME="busybox"']
    two = site.call(*allocate, *parts[:8], "--environment=./other.toml", *parts[8:])
    assert two.returncode != 0
    assert "one srun has one environment" in two.stderr


def test_a_terminal_works_inside(site):
    site.edf()
    ours, theirs = pty.openpty()
    command = ["srun", "--pty", "--environment=./env.toml", "sh", "-c", "test -t 0 && test -t 1 && cat /etc/os-release"]
    with subprocess.Popen(command, cwd=site.folder, env=site.env, stdin=theirs, stdout=theirs, stderr=theirs) as shell:
        assert shell.wait(30) == 0
        said = os.read(ours, 65536)
    os.close(theirs)
    os.close(ours)
    assert b"busybox" in said


def test_scancel_ends_a_step_and_its_container(site):
    site.edf()
    step = site.start("srun", "-N2", "--environment=./env.toml", "sh", "-c", "sleep 7711 & echo up; sleep 7711")
    assert [step.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    site.call("scancel", "--me")
    step.communicate(timeout=30)
    assert step.returncode != 0
    until(lambda: not processes_with("sleep\x007711"), "a task is left")


def test_a_signal_reaches_the_command(site):
    site.edf()
    step = site.start(
        "srun", "--environment=./env.toml", "sh", "-c", "trap 'exit 9' USR1; echo up; while :; do sleep 0.05; done"
    )
    assert step.stdout.readline() == "up\n"
    site.call("scancel", "--signal=USR1", "--me")
    step.communicate(timeout=30)
    assert step.returncode == 9


def test_a_killed_holder_ends_the_step_with_the_reason(site):
    site.edf()
    step = site.start("srun", "-n2", "-N1", "--environment=./env.toml", "sh", "-c", "sleep 7712 & echo up; sleep 7712")
    assert [step.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    os.kill(min(holders()), signal.SIGKILL)
    _, words = step.communicate(timeout=40)
    assert step.returncode != 0
    assert "node n1: the container ended before its tasks" in words
    until(lambda: not processes_with("sleep\x007712"), "a task is left")


def test_a_killed_slurmstepd_leaves_no_task_and_no_container(site, cluster):
    site.edf()
    step = site.start("srun", "-n2", "-N1", "--environment=./env.toml", "sh", "-c", "sleep 7713 & echo up; sleep 7713")
    assert [step.stdout.readline() for _ in range(2)] == ["up\n", "up\n"]
    of_nodes = set().union(*map(cluster.processes_of, cluster.node_names))
    daemons = of_nodes & set(processes_with("slurmstepd: ["))
    assert daemons
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not processes_with("sleep\x007713"), "a task is left")
    until(lambda: not holders(), "the container is left")
    step.kill()
    step.communicate()


def test_a_person_without_privileges_on_nodes_of_root_has_a_container_and_no_more_rights(cluster, site, images):
    home, person = images / "home", os.getuid() or 65534
    home.mkdir()
    drop = ["env", "-C", str(home), f"HOME={home}", f"XDG_CONFIG_HOME={home}", f"XDG_CACHE_HOME={home}"]
    if os.getuid() == 0:
        os.chown(home, person, person)
        drop = ["setpriv", f"--reuid={person}", f"--regid={person}", "--clear-groups", *drop]
        for name in ("", "etc", "munge"):
            (cluster.folder / name).chmod(0o755)
    (home / "env.toml").write_text(f'image = "{images}/box"\n')
    script = "#!/bin/sh\nid -u; touch /made; stat -c %u /made; grep CapEff /proc/self/status; ls /opt\n"
    (home / "job.sh").write_text(script)
    said = site.out(*drop, "srun", "-n2", "-N2", "--environment=./env.toml", "sh", "-c", script)
    batch = site.out(*drop, "sbatch", "--parsable", "--environment=./env.toml", "-o", "out", "job.sh").strip()
    until(lambda: "JobState=COMPLETED" in site.out("scontrol", "show", "job", batch), "the script did not end well")
    said += (home / "out").read_text()
    (home / "squashed.toml").write_text(f'image = "{images}/box.sqsh"\n')
    squashed = site.out(*drop, "srun", "-n1", "--environment=./squashed.toml", "ls", "/opt")
    assert (squashed, processes_with("squashfuse", str(images))) == ("tool\n", [])
    assert sorted(said.splitlines()) == sorted([str(person), str(person), "CapEff:\t0000000000000000", "tool"] * 3)


def test_a_plugin_that_is_there_already_is_no_other_one(site):
    assert "--environment=FILE|NAME" in site.out("srun", "--help")
    assert spank_install.other_plugin(site.env) is None


@pytest.mark.usefixtures("real")
def test_another_plugin_with_the_option_keeps_it(cluster, site, line, tmp_path):
    other = tmp_path / "other.so"
    source = (
        "#include <slurm/spank.h>\nSPANK_PLUGIN(other, 1);\n"
        'static int take(int v, const char *a, int r) { (void)v; (void)r; slurm_spank_log("other has %s", a); return 0; }\n'
        'static struct spank_option o = {"environment", "X", "of the site", 1, 0, take};\n'
        "int slurm_spank_init(spank_t s, int n, char **w) { (void)n; (void)w; return spank_option_register(s, &o); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(other)], input=source, text=True, check=True)
    conf = cluster.folder / "etc" / "plugstack.conf"
    conf.write_text(f"{line}\nrequired {other}\n")
    try:
        cluster.kill_slurmd("n2")
        cluster.start_node("n2")
        done = site.call("srun", "-w", "n2", "--environment=theirs", "sh", "-c", NAMESPACE)
        assert done.returncode == 0, done.stderr
        assert "other has theirs" in done.stderr
        assert done.stdout.strip() == os.readlink("/proc/self/ns/mnt")
        lost = site.call("srun", "-w", "n2", "true", SLURM_CORDEE_ENVIRONMENT="from elsewhere")
        assert lost.returncode == 125
        assert "node n2: no container: another plugin" in lost.stderr
        assert "of the site" in (spank_install.other_plugin(site.env) or "")
    finally:
        conf.write_text(line + "\n")
    log = (cluster.folder / "log" / "n2.log").read_text()
    assert log.count("other.so has the option --environment") == 1


# Start-up commands, hooks and options of others


STARTUP = """[startup]
commands = ["echo begun >> {folder}/begun-$SLURMD_NODENAME", "export LEFT=$GIVEN/$SLURM_JOB_ID PATH=/opt/left:$PATH", "sleep 0.2"]
"""


def test_startup_runs_once_per_node_for_all_its_tasks_which_get_what_it_left(site):
    site.edf(f'mounts = ["{site.folder}"]\n' + STARTUP.format(folder=site.folder))
    program = "echo $LEFT $SLURM_JOB_ID $PATH"
    done = site.call("srun", "-N2", "-n8", "--environment=./env.toml", "sh", "-c", program, GIVEN="of the job")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 8
    for line in lines:
        left, job, path = line.removeprefix("of the ").split()
        assert left == f"job/{job}"
        assert path.startswith("/opt/left:")
    begun = {path.name: path.read_text() for path in site.folder.glob("begun-*")}
    assert begun == {"begun-n1": "begun\n", "begun-n2": "begun\n"}
    assert done.stderr.count("start-up: 3 commands in 0.") == 2


def test_a_startup_adds_to_the_path_of_an_environment_that_was_not_exported(site):
    site.edf('[startup]\ncommands = ["export PATH=/opt/mine:$PATH"]\n')
    path = (
        site.out("srun", "-n1", "--export=NONE", "--environment=./env.toml", "sh", "-c", "echo $PATH")
        .strip()
        .split(":")
    )
    assert path[0] == "/opt/mine"
    assert "/bin" in path[1:]


def test_a_startup_command_that_fails_ends_the_step_and_is_named(site):
    site.edf("[startup]\ncommands = ['true', 'echo told; ls /nowhere']\n")
    done = site.call("srun", "-n4", "--environment=./env.toml", "true")
    assert done.returncode == 125
    assert done.stderr.count("no container: start-up command 2 of 2 ended with exit code") == 1
    assert done.stderr.startswith("told\n")
    assert "ls /nowhere" in done.stderr


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("batch", [False, True])
def test_scancel_ends_a_startup_that_runs_at_once_and_all_that_it_started(site, batch):
    site.edf("[startup]\ncommands = ['sleep 7714 & sleep 7714']\n")
    (site.folder / "job.sh").write_text("#!/bin/sh\n")
    if batch:
        site.out("sbatch", "--environment=./env.toml", "job.sh")
    else:
        step = site.start("srun", "-n4", "-N2", "--environment=./env.toml", "true")
    until(lambda: len(processes_with("sleep\x007714")) == (2 if batch else 4), "the start-up does not run")
    site.call("scancel", "--me")
    until(lambda: not processes_with("sleep\x007714") and not holders(), "the start-up goes on", timeout_s=10.0)
    until(lambda: not site.jobs(), "the job does not end", timeout_s=10.0)
    if not batch:
        step.communicate(timeout=30)
        assert step.returncode != 0


@pytest.mark.usefixtures("real")
def test_a_holder_that_is_killed_during_the_startup_ends_the_step_with_the_reason(site):
    site.edf("[startup]\ncommands = ['sleep 7715']\n")
    step = site.start("srun", "-n2", "-N1", "--environment=./env.toml", "true")
    until(lambda: processes_with("sleep\x007715"), "the start-up does not run")
    os.kill(min(holders()), signal.SIGKILL)
    _, words = step.communicate(timeout=30)
    assert step.returncode == 125
    assert "no container: what holds it ended during the start-up" in words
    until(lambda: not processes_with("sleep\x007715"), "the start-up goes on")


@pytest.mark.usefixtures("real")
def test_startup_may_take_longer_than_the_site_gives_a_container_and_is_ended_at_its_own_limit(site, images):
    site.edf("[startup]\ncommands = ['sleep 31']\ntimeout = '1min'\n")
    slow = site.start("srun", "--environment=./env.toml", "echo", "up")
    site.edf("[startup]\ncommands = ['sleep 300']\ntimeout = '1s'\n", name="hangs.toml")
    done = site.call("srun", "--environment=./hangs.toml", "true")
    assert "did not end within 1 s" in done.stderr
    assert done.returncode == 125
    assert slow.communicate(timeout=60)[0] == "up\n"


def test_ssh_reaches_a_shell_in_the_container_of_a_step_by_the_real_client(site):
    key = site.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    annotations = f"[annotations.com.hooks.ssh]\nenabled = true\nauthorize_ssh_key = '{key}.pub'\nport = 15301\n"
    site.edf("[startup]\ncommands = ['export LEFT=here', 'touch /tmp/inside']\n" + annotations)
    job = site.start("srun", "--environment=./env.toml", "sleep", "60")
    options = ["BatchMode=yes", "StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
    words = ["ssh", "-F", "none", "-i", str(key), "-p", "15301", *(word for each in options for word in ("-o", each))]

    def entered() -> str:
        return site.call(*words, "root@127.0.0.1", "echo $LEFT; ls /tmp/inside /opt/tool").stdout

    until(entered, "ssh does not get in")
    assert entered().split() == ["here", "/opt/tool", "/tmp/inside"]
    site.call("scancel", "--name=sleep")
    job.communicate(timeout=30)
    until(lambda: not processes_with("sshd", "ssh-"), "a server is left")


def test_the_hook_of_slurm_brings_its_commands_into_any_image(site, plugin, open_to_all):
    shown = [str(plugin.parent), str(open_to_all.source)]
    site.edf(f"mounts = {shown}\n[annotations]\ncom.hooks.slurm.enabled = 'true'\n")
    assert "NodeName=n1" in site.out("srun", "--environment=./env.toml", "sh", "-c", "scontrol show node n1")
    # From one container into another, beside it.
    inner = f"srun --overlap -n1 {NAMESPACE}; {NAMESPACE}"
    one, other = site.out("srun", "--environment=./env.toml", "sh", "-c", inner).split()
    assert one != other


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--container-workdir=/x", 'workdir = "PATH"'),
        ("--container-writable", "writable"),
        ("--container-mounts=/a:/b", "mounts"),
    ],
)
def test_options_of_other_plugins_are_refused_with_the_key_that_says_the_same(site, option, instead):
    site.edf()
    done = site.call("srun", "--environment=./env.toml", option, "true")
    assert done.returncode != 0
    assert f"{option.split('=')[0]} belongs to another container plugin" in done.stderr
    assert instead in done.stderr


def test_edf_is_another_name_of_the_option(site):
    site.edf()
    assert site.out("srun", "--edf=./env.toml", "/opt/tool") == "the tool inside\n"
