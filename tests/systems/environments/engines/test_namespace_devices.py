"""GPUs, CDI devices and what else is below /dev, on trees that stand for hosts which have them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cordee.systems.environments.node.engines._base import EXIT_ENGINE
from cordee.systems.environments.node.engines.namespace.gpus.drivers import (
    LIBRARIES,
    PROGRAMS,
    driver_libraries,
    wanted_edits,
)
from cordee.systems.environments.node.engines.namespace.gpus.edits import Unknown
from cordee.systems.environments.node.engines.namespace.root.mounted_root import HOST_ROOT
from cordee.systems.environments.node.engines.podman.devices import devices_for
from cordee.testing.containers import ENV


@pytest.fixture
def host(place) -> Path:
    """A host with two NVIDIA GPUs and the driver's files; device files are plain ones."""
    root = place / "host"
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap1"):
        write(root / "dev" / name, name)
    folder = root / "usr/lib64"
    for name in ("libcuda.so.550.54.15", "libnvidia-ml.so.550.54.15"):
        write(folder / name, name)
        (folder / f"{name.partition('.so')[0]}.so.1").symlink_to(name)
    write(folder / "libc.so.6", "not the driver's")
    write(folder / "libnvidia-container.txt", "no library")
    write(root / "usr/bin/nvidia-smi", "#!/bin/sh\necho GPU 0\n").chmod(0o755)
    return root


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(edits) -> set[str]:
    return {target for _, target in edits.nodes}


def test_the_drivers_libraries_are_found_under_every_name_that_programs_ask_for(host):
    found = driver_libraries(str(host))
    assert set(found) == {
        "libcuda.so.550.54.15",
        "libcuda.so.1",
        "libnvidia-ml.so.550.54.15",
        "libnvidia-ml.so.1",
    }
    assert found["libcuda.so.1"] == str(host / "usr/lib64/libcuda.so.550.54.15")


def test_a_machines_gpus_are_there_unasked_and_a_machine_without_adds_nothing(host, place):
    edits = wanted_edits([], str(host))
    assert names(edits) == {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps"}
    assert edits.appended == [("LD_LIBRARY_PATH", LIBRARIES), ("PATH", PROGRAMS)]
    bare = wanted_edits([], str(place / "none"))
    assert (bare.nodes, bare.mounts, bare.appended) == ([], [], [])


def test_amd_gpus_are_device_files_only(place):
    write(place / "amd/dev/kfd", "")
    write(place / "amd/dev/dri/renderD128", "")
    edits = wanted_edits([], str(place / "amd"))
    assert (names(edits), edits.mounts) == ({"/dev/kfd", "/dev/dri"}, [])


def test_gpus_can_be_chosen_by_their_number_without_a_cdi_file(host):
    assert "/dev/nvidia0" not in names(wanted_edits(["nvidia.com/gpu=1"], str(host)))
    assert {"/dev/nvidia0", "/dev/nvidia1"} <= names(wanted_edits(["nvidia.com/gpu=all"], str(host)))
    with pytest.raises(Unknown, match="no GPU 7"):
        wanted_edits(["nvidia.com/gpu=7"], str(host))


def test_gpus_that_are_asked_for_and_not_there_are_named(place):
    with pytest.raises(Unknown, match="no NVIDIA GPU"):
        wanted_edits(["nvidia.com/gpu=all"], str(place))
    with pytest.raises(Unknown, match=r"no /dev/no-such"):
        wanted_edits(["/dev/no-such"], str(place))
    with pytest.raises(Unknown, match="CDI name"):
        wanted_edits(["gpu"], str(place))


def spec(**edits: object) -> dict[str, object]:
    common = {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "hooks": edits.pop("hooks", [])}
    device = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}], **edits}}
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "containerEdits": common, "devices": [device]}


def test_a_cdi_file_says_what_a_device_needs_in_place_of_what_is_found(host):
    write(host / "opt/libx.so", "x")
    hooks = [
        {
            "hookName": "createContainer",
            "args": ["nvidia-ctk", "hook", "create-symlinks", "--link", "libx.so::/opt/in/x.so"],
        },
        {"hookName": "createContainer", "args": ["nvidia-ctk", "hook", "update-ldcache", "--folder", "/opt/in"]},
        {"hookName": "createContainer", "args": ["nvidia-ctk", "hook", "chmod", "--mode", "755", "--path", "/dev/dri"]},
    ]
    mount = {"hostPath": "/opt/libx.so", "containerPath": "/opt/in/libx.so", "options": ["ro", "rbind", "nosuid"]}
    write(host / "etc/cdi/nvidia.json", json.dumps(spec(hooks=hooks, mounts=[mount])))
    edits = wanted_edits(["nvidia.com/gpu=0"], str(host))
    assert names(edits) == {"/dev/nvidia0"}
    assert edits.mounts == [(str(host / "opt/libx.so"), "/opt/in/libx.so", ("ro", "nosuid"))]
    assert edits.variables == [("NVIDIA_VISIBLE_DEVICES", "void")]
    assert edits.links == [("/opt/in/x.so", "libx.so")]
    assert edits.appended == [("LD_LIBRARY_PATH", "/opt/in")]


def test_cdi_files_are_read_as_yaml_too_and_a_damaged_one_is_named(host):
    yaml = 'kind: "acme.com/net"\ndevices:\n- name: fast\n  containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia-uvm\n'
    path = write(host / "var/run/cdi/acme.yaml", yaml)
    assert "/dev/nvidia-uvm" in names(wanted_edits(["acme.com/net=fast"], str(host)))
    with pytest.raises(Unknown, match="no CDI file") as caught:
        wanted_edits(["acme.com/net=slow"], str(host))
    assert "acme.com/net=fast" in (caught.value.next or "")
    for text in ("kind: [", "[]", "kind: x"):
        path.write_text(text)
        with pytest.raises(Unknown) as caught:
            wanted_edits(["acme.com/net=fast"], str(host))
        assert caught.value.given == str(path)


def test_a_hook_of_a_cdi_file_that_is_not_known_is_run_in_the_engine_and_by_podman(host, run):
    program = Path("/var/tmp") / f"cordee-cdi-hook-{os.getpid()}"
    program.write_text('#!/bin/sh\ncat >&2; echo " $1 $X" >&2\n')
    program.chmod(0o755)
    hook = {
        "hookName": "createContainer",
        "path": str(program),
        "args": ["hook", "--now"],
        "env": ["X=y", "PATH=/bin:/usr/bin"],
    }
    write(host / "etc/cdi/nvidia.json", json.dumps(spec(hooks=[hook])))
    try:
        done = run("echo", "up", env={**ENV, HOST_ROOT: str(host)}, devices=("nvidia.com/gpu=0",))
    finally:
        program.unlink()
    assert done.stdout == "up\n", done.stderr
    assert '"status": "creating"' in done.stderr
    assert "--now y" in done.stderr
    _, left = devices_for(["nvidia.com/gpu=0"], str(host))
    assert left == ["nvidia.com/gpu=0"]


def test_a_hook_of_a_cdi_file_without_a_program_is_refused(host):
    write(host / "etc/cdi/nvidia.json", json.dumps(spec(hooks=[{"args": ["do-something", "--now"]}])))
    with pytest.raises(Unknown, match="names no program") as caught:
        wanted_edits(["nvidia.com/gpu=0"], str(host))
    assert caught.value.given == "do-something --now"


@pytest.mark.parametrize("writable", [True, False])
def test_devices_and_the_drivers_files_are_inside(run, host, writable):
    script = f"cat /dev/nvidia1 /dev/nvidia-caps/nvidia-cap1 {LIBRARIES}/libcuda.so.1; echo; nvidia-smi; echo $LD_LIBRARY_PATH"
    done = run("sh", "-c", script, env={**ENV, HOST_ROOT: str(host)}, writable=writable)
    assert done.stdout == f"nvidia1nvidia-caps/nvidia-cap1libcuda.so.550.54.15\nGPU 0\n{LIBRARIES}\n", done.stderr
    longer = run("sh", "-c", "echo $LD_LIBRARY_PATH", env={**ENV, HOST_ROOT: str(host), "LD_LIBRARY_PATH": "/mine"})
    assert longer.stdout == f"/mine:{LIBRARIES}\n"


def test_a_device_that_is_not_there_ends_the_start_with_words(run, host):
    done = run("true", env={**ENV, HOST_ROOT: str(host)}, devices=("nvidia.com/gpu=9",))
    assert done.returncode == EXIT_ENGINE
    assert "nvidia.com/gpu=9" in done.stderr


def test_the_usual_devices_work_inside(run):
    script = (
        "echo x > /dev/null && head -c 3 /dev/zero | wc -c && head -c 4 /dev/urandom | wc -c && ls -d /dev/shm /dev/pts /dev/fd"
        " && touch /dev/shm/cordee-test-$$ && rm /dev/shm/cordee-test-$$ && echo y | cat /dev/stdin && stat -c %a /dev"
    )
    done = run("sh", "-c", script)
    assert done.stdout.split() == ["3", "4", "/dev/fd", "/dev/pts", "/dev/shm", "y", "755"], done.stderr
