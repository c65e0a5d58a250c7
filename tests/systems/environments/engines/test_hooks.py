"""The hooks that come with Cordée, on trees that stand for machines which have what they need."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cordee.systems.environments.node.document import ContainerRoot, Environment
from cordee.systems.environments.node.engines._base import EngineError
from cordee.systems.environments.node.hooks import HOOKS, find_hook, hooked
from cordee.systems.environments.node.hooks.host_program import program_mounts
from cordee.systems.environments.node.hooks.oci import oci_hooks
from cordee.testing.hooks import HookCase, HookContract


def hook(name: str):
    found = find_hook(name)
    assert found is not None
    return found


def file(path: Path, text: str = "", mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """A machine with Slingshot, an NVIDIA GPU and the plugin of NCCL."""
    root = tmp_path / "host"
    for name in (
        "dev/cxi0",
        "dev/nvidiactl",
        "usr/lib64/libcxi.so.1.5.0",
        "opt/cray/libfabric/1.22.0/lib64/libfabric.so.1",
    ):
        file(root / name)
    file(root / "opt/cscs/aws-ofi-ccl-plugin/cuda12/libnccl-net.so")
    return {"CORDEE_HOST_ROOT": str(root), "CORDEE_HOOKS_DIR": ""}


NOWHERE = {"CORDEE_HOST_ROOT": "/nowhere"}


def stack(folder: Path, host: dict[str, str]) -> dict[str, str]:
    """Make a site's folder of libraries; return the settings that name it."""
    host["CORDEE_NETSTACKS"] = str(folder / "stacks")
    at = folder / "stacks" / os.uname().machine / "26.08.1" / "gpu_rocm7-cxi_13.1.0"
    for name in ("libfabric.so.1", "libcxi.so.1", "librccl-net.so", "libamdhip64.so.7", "libc.so.6"):
        file(at / name)
    return {"netstack.source": "artifact", "netstack.version": "26.08.1", "netstack.name": "gpu:rocm7,cxi:13.1.0"}


class TestCxiHook(HookContract):
    @pytest.fixture
    def case(self, machine):
        return HookCase(hook("cxi"), {}, machine, NOWHERE)


class TestOfiNcclHook(HookContract):
    @pytest.fixture
    def case(self, machine):
        return HookCase(hook("aws_ofi_nccl"), {"variant": "cuda12"}, machine, NOWHERE)


class TestOfiNcclHookOfAStack(HookContract):
    @pytest.fixture
    def case(self, machine, tmp_path):
        return HookCase(hook("aws_ofi_nccl"), stack(tmp_path, machine), machine, NOWHERE)


class TestDcgmHook(HookContract):
    @pytest.fixture
    def case(self, machine, tmp_path):
        file(tmp_path / "host/usr/lib64/libdcgm.so.4")
        return HookCase(hook("dcgm"), {}, machine, NOWHERE)


class TestLibraryCacheHook(HookContract):
    @pytest.fixture
    def case(self):
        return HookCase(hook("ldcache"), {})


class TestMpsHook(HookContract):
    @pytest.fixture
    def case(self, machine, tmp_path, monkeypatch):
        file(tmp_path / "bin/nvidia-cuda-mps-control", "#!/bin/sh\n", 0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
        return HookCase(hook("nvidia_cuda_mps"), {}, machine, NOWHERE)


class TestSlurmHook(HookContract):
    @pytest.fixture
    def case(self):
        return HookCase(hook("slurm"), {})


class TestSshHook(HookContract):
    @pytest.fixture
    def case(self, tmp_path):
        key = file(tmp_path / "key.pub", "ssh-ed25519 AAAA me\n")
        return HookCase(hook("ssh"), {"authorize_ssh_key": str(key)}, {})


def test_every_hook_of_the_table_is_there_under_its_name():
    assert {name: hook(name).name for name in HOOKS} == {name: name for name in HOOKS}


def asking(**annotations: str) -> Environment:
    said = {f"com.hooks.{name.replace('__', '.')}": value for name, value in annotations.items()}
    return Environment("e", "/image", annotations=said, root=ContainerRoot("folder", "/image"))


def test_a_hook_that_can_be_done_without_is_left_out_with_a_line_and_a_required_one_ends_the_start(machine):
    lines: list[str] = []
    asked = asking(cxi__enabled="true")
    assert hooked(asked, {**NOWHERE, "CORDEE_HOOKS_DIR": ""}, lines.append) == asked
    assert "cxi is left out: this machine has no Slingshot" in lines[0]
    assert hooked(asked, machine, lines.append).env == {"FI_PROVIDER": "cxi"}
    with pytest.raises(EngineError, match="nobody could enter"):
        hooked(asking(ssh__enabled="true"), machine, lines.append)


def test_a_stack_of_the_site_brings_all_its_libraries_but_those_of_the_loader(machine, tmp_path):
    told = {f"com.hooks.{key}": value for key, value in stack(tmp_path, machine).items()}
    asked = replace(asking(cxi__enabled="true"), annotations={**told, "com.hooks.cxi.enabled": "true"})
    brought = {Path(mount.target).name for mount in hooked(asked, machine, print).mounts}
    assert brought == {"libfabric.so.1", "libcxi.so.1", "librccl-net.so", "libamdhip64.so.7"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"netstack.version": "1"}, "has no libfabric"),
        ({"netstack.name": ""}, "names no version and name"),
        ({"netstack.name": "../../secret"}, "names no version and name"),
        ({"netstack.source": "hosts"}, "neither artifact nor host"),
    ],
)
def test_a_stack_that_is_not_there_is_named_and_the_hosts_is_not_taken_in_its_place(machine, tmp_path, change, words):
    (missing,) = hook("cxi").missing({**stack(tmp_path, machine), **change}, machine)
    assert words in missing.text


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", 0o600, "a private key"),
        ("ssh-ed25519 AAAA me\n", 0o666, "others may write"),
        ("# nothing\n\n", 0o644, "no key"),
        (None, 0, "cannot be read"),
    ],
)
def test_a_file_of_keys_that_would_let_in_nobody_or_anybody_is_refused(tmp_path, text, mode, words):
    path = tmp_path / "key.pub"
    if text is not None:
        file(path, text, mode)
    (missing,) = hook("ssh").missing({"authorize_ssh_key": str(path)}, {})
    assert words in missing.text
    assert missing.given == str(path)


@pytest.mark.parametrize("port", ["22", "65536", "-1", "ssh", "１５２６３", ""])
def test_a_port_of_ssh_that_is_none_is_refused(tmp_path, port):
    (missing,) = hook("ssh").missing(
        {"authorize_ssh_key": str(file(tmp_path / "k", "ssh-ed25519 A")), "port": port}, {}
    )
    assert missing.given == port


# Hooks of the machine, by files


HOOK = '{"version": "1.0.0", "hook": {"path": "/bin/hook"}, "when": %s, "stages": ["createRuntime", "poststop"]}'


def files(folder: Path, **when: str) -> dict[str, str]:
    for name, condition in when.items():
        file(folder / f"{name}.json", HOOK % condition)
    return {"CORDEE_HOOKS_DIR": str(folder)}


def test_hooks_of_a_machine_are_those_whose_conditions_all_hold(tmp_path):
    host = files(
        tmp_path,
        a='{"always": true}',
        b='{"annotations": {"^com.x$": "^on$"}}',
        c='{"annotations": {"^com.x$": "^off$"}}',
        d='{"hasBindMounts": true}',
        e='{"annotations": {"^com.x$": "on"}, "hasBindMounts": true}',
        f="{}",
    )
    found = oci_hooks(Environment("e", "/image", annotations={"com.x": "on"}), host)
    assert [each["stage"] for each in found] == ["createRuntime", "poststop"] * 2
    assert found[0] == {"stage": "createRuntime", "path": "/bin/hook", "args": ["hook"], "env": [], "timeout": 0}


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"hook": {}, "stages": []}', HOOK.replace("poststop", "later") % '{"always": true}']
)
def test_a_damaged_file_of_a_hook_is_named(tmp_path, text):
    path = file(tmp_path / "x.json", text)
    with pytest.raises(EngineError) as caught:
        oci_hooks(Environment("e", "/image"), {"CORDEE_HOOKS_DIR": str(tmp_path)})
    assert str(path) in str(caught.value.given)


def test_where_the_machine_has_a_hook_of_its_own_ours_stays_away(tmp_path, machine):
    own = files(tmp_path / "hooks.d", cxi='{"annotations": {"^com.hooks.cxi.enabled$": "true"}}')
    asked = asking(cxi__enabled="true")
    assert hooked(asked, {**machine, **own}, print) == asked


STATE = """#!/bin/sh
{{ echo "$1"; cat; echo; }} >> {log}
case "$1" in fail) exit 3 ;; hang) sleep 60 ;; esac
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Have the machine run a program that notes what it is told, with this argument at these stages."""
    log = Path("/var/tmp") / f"cordee-hook-log-{os.getpid()}"
    program = file(Path("/var/tmp") / f"cordee-hook-{os.getpid()}", STATE.format(log=log), 0o755)

    def make(word: str, *stages: str, timeout: int = 10) -> Path:
        text = HOOK.replace(
            '"/bin/hook"', f'"{program}", "args": ["h", "{word}"], "env": ["PATH=/bin:/usr/bin"], "timeout": {timeout}'
        )
        file(
            tmp_path / "d/x.json",
            text.replace('"createRuntime", "poststop"', ", ".join(f'"{each}"' for each in stages)) % '{"always": true}',
        )
        monkeypatch.setenv("CORDEE_HOOKS_DIR", str(tmp_path / "d"))
        return log

    yield make
    for path in (log, program):
        path.unlink(missing_ok=True)


def test_hooks_get_the_state_of_their_stage(run, site):
    log = site("note", "prestart", "createRuntime", "createContainer", "poststart", "poststop")
    done = run("echo", "up", annotations={"com.site": "x"})
    assert (done.returncode, done.stdout) == (0, "up\n"), done.stderr
    until = time.monotonic() + 10
    while log.read_text().count("note") < 5 and time.monotonic() < until:
        time.sleep(0.02)
    states = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    assert [each["status"] for each in states] == ["creating"] * 3 + ["running", "stopped"]
    assert {each["annotations"]["com.site"] for each in states} == {"x"}
    assert len({each["id"] for each in states}) == 1
    assert all(os.path.isabs(each["bundle"]) for each in states)
    assert len({each["pid"] for each in states[:4]}) == 1
    assert "pid" not in states[4]


@pytest.mark.parametrize(("word", "words"), [("fail", "ended with exit code 3"), ("hang", "did not end within 1 s")])
def test_a_hook_that_fails_or_hangs_ends_the_start_with_its_name(run, site, word, words):
    site(word, "createRuntime", timeout=1)
    done = run("echo", "up")
    assert done.returncode == 125
    assert f"a hook of the stage createRuntime {words}" in done.stderr
    assert "cordee-hook-" in done.stderr


@pytest.mark.parametrize("who", [[]])  # the user for whom they are mounted
def test_programs_of_the_host_run_in_an_image_with_another_c_library(run):
    mounts = tuple(program_mounts([("/usr/bin/ssh-keygen", "/usr/local/bin/ssh-keygen")]))
    assert "usage: ssh-keygen" in run("/usr/local/bin/ssh-keygen", "-?", mounts=mounts).stderr
