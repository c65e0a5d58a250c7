"""Whether a folder is there inside: folders, squashfs files, mounts, links that lead out."""

from __future__ import annotations

import subprocess

import pytest

from cordee.systems.environments.inside import has_folder
from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment

FOUND = {
    "/": True,
    "/real": True,
    "/real/deep": True,
    "/real/../real/deep": True,
    "/link/deep": True,
    "/near": True,
    "/chain/deep": True,
    "/file": False,
    "/link/none": False,
    "/none": False,
    "/loop": False,
    "/out": False,
    "/real/deep/../../../../real": True,
}


@pytest.fixture(params=["folder", "squashfs"])
def root(request, tmp_path):
    folder = tmp_path / "root"
    (folder / "real" / "deep").mkdir(parents=True)
    (folder / "file").write_text("")
    for name, target in {
        "link": "/real",
        "near": "real/deep",
        "chain": "link",
        "loop": "loop",
        "out": f"{tmp_path}/outside",
    }.items():
        (folder / name).symlink_to(target)
    (tmp_path / "outside").mkdir()
    if request.param == "folder":
        return ContainerRoot("folder", str(folder))
    file = tmp_path / "root.sqsh"
    subprocess.run(["mksquashfs", folder, file, "-quiet", "-no-progress"], check=True)
    return ContainerRoot("squashfs", str(file))


def test_a_folder_is_found_as_it_is_seen_inside(root):
    environment = Environment(name="x", root=root)
    assert {path: has_folder(path, environment) for path in FOUND} == FOUND


def test_what_is_mounted_counts(root, tmp_path):
    (tmp_path / "data" / "in").mkdir(parents=True)
    kind = ("sqsh",) if root.kind == "squashfs" else ()
    mounts = (ContainerMount(str(tmp_path / "data"), "/data"), ContainerMount(root.path, "/real/packed", kind))
    environment = Environment(name="x", root=root, mounts=mounts)
    paths = ("/data", "/data/in", "/data/none", "/real/packed/real", "/real/packed/none", "/real/deep")
    assert [has_folder(path, environment) for path in paths] == [True, True, False, True, False, True]


def test_without_unsquashfs_nothing_is_known_of_a_squashfs_file(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert has_folder("/x", Environment(name="x", root=ContainerRoot("squashfs", "/x.sqsh"))) is None


def test_a_file_that_is_no_squashfs_tells_nothing(tmp_path):
    (tmp_path / "x.sqsh").write_text("text")
    assert has_folder("/x", Environment(name="x", root=ContainerRoot("squashfs", str(tmp_path / "x.sqsh")))) is None


def test_the_root_of_the_host_is_looked_at_as_it_is(tmp_path):
    environment = Environment(name="x", root=ContainerRoot("host"))
    assert has_folder(str(tmp_path), environment)
    assert not has_folder(f"{tmp_path}/none", environment)
