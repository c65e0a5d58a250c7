"""Archives and layouts: which image is meant, and what is damaged or missing in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cordee.machine.images.errors import ImageError
from cordee.machine.images.oci import OciImage, open_image, this_architecture
from cordee.systems.environments.images.merged import merge
from cordee.testing.oci import LayerEntry, OciLayout, docker_archive

from .conftest import held

DATA = os.urandom(100_000)
LAYERS = [[LayerEntry("a", DATA)], [LayerEntry("b", b"2")]]
CONFIG = {"Env": ["PATH=/bin", "EMPTY=", "E=a=b"], "Entrypoint": ["/entry"], "Cmd": ["sh", "-l"], "WorkingDir": "/w"}


def contents(image: OciImage, folder: Path) -> dict[str, Any]:
    made = folder / f"{image.digest[7:19]}.squashfs"
    merge(image, made)
    return {path: data for path, (_, data) in held(made).items()}


def test_the_configuration_is_read(layout: OciLayout) -> None:
    digest = layout.add(LAYERS, config=CONFIG)
    config = open_image(layout.folder).config
    assert config.env == {"PATH": "/bin", "EMPTY": "", "E": "a=b"}
    assert (config.entrypoint, config.command, config.workdir) == (("/entry",), ("sh", "-l"), "/w")
    assert (config.architecture, config.digest) == ("amd64", digest)


def test_a_configuration_may_say_nothing(layout: OciLayout) -> None:
    layout.add(LAYERS, config={"Env": None, "Entrypoint": None, "Cmd": "sh", "WorkingDir": ""})
    config = open_image(layout.folder).config
    assert (config.env, config.entrypoint, config.command, config.workdir) == ({}, (), ("sh",), None)


def test_a_layout_and_its_archive_are_the_same_image(layout: OciLayout, tmp_path: Path) -> None:
    layout.add(LAYERS)
    archive = open_image(layout.archive(tmp_path / "image.tar"))
    assert archive.digest == open_image(layout.folder).digest
    assert contents(archive, tmp_path) == {"a": DATA, "b": b"2"}


def test_what_docker_save_writes_is_read(tmp_path: Path) -> None:
    image = open_image(docker_archive(tmp_path / "image.tar", LAYERS, config=CONFIG))
    assert image.config.workdir == "/w"
    assert contents(image, tmp_path) == {"a": DATA, "b": b"2"}


@pytest.mark.parametrize("form", ["oci-archive", "docker-archive"])
def test_what_skopeo_writes_is_read(form: str, layout: OciLayout, tmp_path: Path) -> None:
    layout.add(LAYERS, config=CONFIG, tag="made")
    path = tmp_path / "image.tar"
    source, target = f"oci:{layout.folder}:made", f"{form}:{path}:made:latest"
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", source, target], check=True)
    image = open_image(path)
    assert image.config.command == ("sh", "-l")
    assert contents(image, tmp_path) == {"a": DATA, "b": b"2"}


# Which one.


def test_the_image_for_this_machine_is_taken(layout: OciLayout) -> None:
    other = "arm64" if this_architecture() == "amd64" else "amd64"
    layout.add(LAYERS, architecture=other, platform=True)
    own = layout.add(LAYERS, architecture=this_architecture(), platform=True)
    assert open_image(layout.folder).digest == own
    assert open_image(layout.folder, architecture=other).config.architecture == other


@pytest.mark.parametrize("platform", [True, False])
def test_an_image_for_other_machines_is_refused_with_those_it_is_for(layout: OciLayout, platform: bool) -> None:
    layout.add(LAYERS, architecture="s390x", platform=platform)
    layout.add(LAYERS, architecture="riscv64", platform=platform)
    with pytest.raises(ImageError, match=r"(?s)not for this machine, which is amd64.*for riscv64, s390x"):
        open_image(layout.folder, architecture="amd64")


def test_an_archive_for_other_machines_is_refused(tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "image.tar", LAYERS, architecture="s390x")
    with pytest.raises(ImageError, match=r"(?s)not for this machine.*s390x"):
        open_image(path, architecture="amd64")


def test_an_image_for_windows_is_refused(layout: OciLayout) -> None:
    layout.add(LAYERS)
    edit_config(layout, os="windows")
    with pytest.raises(ImageError, match="for windows, not for Linux"):
        open_image(layout.folder)


def test_one_of_several_images_is_chosen_by_its_tag(layout: OciLayout) -> None:
    first, second = layout.add([[LayerEntry("1")]], tag="one"), layout.add([[LayerEntry("2")]], tag="example.com/x:two")
    assert open_image(layout.folder, tag="one").digest == first
    assert open_image(layout.folder, tag="two").digest == second
    with pytest.raises(ImageError, match=r"(?s)several images in it.*example.com/x:two, one"):
        open_image(layout.folder)
    with pytest.raises(ImageError, match=r"(?s)no image of that tag.*example.com/x:two, one"):
        open_image(layout.folder, tag="three")


def test_an_index_within_an_index_is_followed_and_attestations_are_passed_over(layout: OciLayout) -> None:
    digest = layout.add(LAYERS, platform=True)
    inner = json.loads((layout.folder / "index.json").read_text())
    inner["manifests"].append(
        {"digest": "sha256:" + "0" * 64, "size": 1, "platform": {"os": "unknown", "architecture": "unknown"}}
    )
    descriptor = layout.blob(json.dumps(inner).encode(), "application/vnd.oci.image.index.v1+json")
    (layout.folder / "index.json").write_text(json.dumps({"manifests": [descriptor]}))
    assert open_image(layout.folder).digest == digest


# Damage.


def blob_path(layout: OciLayout, number: int) -> Path:
    """Return the file of a layer."""
    index = json.loads((layout.folder / "index.json").read_text())
    manifest = json.loads((layout.folder / "blobs" / index["manifests"][0]["digest"].replace(":", "/")).read_text())
    return layout.folder / "blobs" / manifest["layers"][number]["digest"].replace(":", "/")


def edit_config(layout: OciLayout, **changes: Any) -> None:
    """Change the configuration of the only image, with all digests right."""
    index = json.loads((layout.folder / "index.json").read_text())
    manifest = json.loads((layout.folder / "blobs" / index["manifests"][0]["digest"].replace(":", "/")).read_text())
    config = json.loads((layout.folder / "blobs" / manifest["config"]["digest"].replace(":", "/")).read_text())
    manifest["config"] = layout.blob(json.dumps({**config, **changes}).encode(), "config")
    index["manifests"] = [layout.blob(json.dumps(manifest).encode(), "manifest")]
    (layout.folder / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("place", [0.02, 0.5, 0.9])
def test_a_damaged_layer_is_named(layout: OciLayout, tmp_path: Path, compression: str, place: float) -> None:
    layout.add(LAYERS, compression=compression)
    path = blob_path(layout, 0)
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ImageError, match=rf"layer 1 of 2 \(sha256:{path.name[:12]}\.\.\.\) is damaged"):
        merge(open_image(layout.folder), tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_a_layer_that_is_cut_off_is_named(layout: OciLayout, tmp_path: Path, compression: str) -> None:
    layout.add(LAYERS, compression=compression)
    path = blob_path(layout, 0)
    path.write_bytes(path.read_bytes()[:60_000])
    with pytest.raises(ImageError, match=r"layer 1 of 2 \(sha256:.*\) is cut off: 60 kB of 1\d\d kB"):
        merge(open_image(layout.folder), tmp_path / "made")


def test_a_missing_layer_is_named(layout: OciLayout, tmp_path: Path) -> None:
    layout.add(LAYERS)
    blob_path(layout, 1).unlink()
    with pytest.raises(ImageError, match=r"layer 2 of 2 .* is missing"):
        merge(open_image(layout.folder), tmp_path / "made")


def test_a_damaged_layer_of_docker_save_is_named(tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "image.tar", LAYERS)
    data = path.read_bytes()
    place = data.index(DATA[:100])
    path.write_bytes(data[:place] + b"XX" + data[place + 2 :])
    with pytest.raises(ImageError, match="layer 1 of 2 is damaged: it has another digest"):
        merge(open_image(path), tmp_path / "made")


@pytest.mark.parametrize("keep", [0, 100, 5000, 60_000])
def test_an_archive_that_is_cut_off_is_said_to_be_so(layout: OciLayout, tmp_path: Path, keep: int) -> None:
    layout.add(LAYERS)
    path = layout.archive(tmp_path / "image.tar")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ImageError, match=r"cut off|neither index|missing") as caught:
        merge(open_image(path), tmp_path / "made")
    assert str(path) in str(caught.value.given)


def test_an_archive_that_is_compressed_as_a_whole_says_how_to_undo_it(layout: OciLayout, tmp_path: Path) -> None:
    layout.add(LAYERS)
    path = layout.archive(tmp_path / "image.tar")
    subprocess.run(["gzip", "-1", path], check=True)
    with pytest.raises(ImageError, match=r"(?s)compressed \(gzip\).*gunzip -k"):
        open_image(path.with_suffix(".tar.gz"))


def test_a_folder_that_is_no_layout_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="neither index"):
        open_image(tmp_path)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("index.json", "{"),
        ("index.json", "[]"),
        ("index.json", '{"manifests": [3]}'),
        ("index.json", '{"manifests": [{"digest": "../../etc/passwd", "size": 1}]}'),
        ("index.json", '{"manifests": [{"digest": 3}]}'),
        ("index.json", '{"manifests": [{"digest": "sha256:' + "0" * 64 + '", "size": "x"}]}'),
        ("index.json", '{"manifests": [{"digest": "sha256:' + "0" * 64 + '", "size": 1}]}'),
        ("index.json", '{"manifests": []}'),
        ("index.json", '{"manifests": 3}'),
        ("index.json", '{"manifests": [{"annotations": 3, "platform": []}]}'),
    ],
)
def test_an_index_of_any_shape_is_refused_in_words(layout: OciLayout, file: str, text: str) -> None:
    layout.add(LAYERS)
    (layout.folder / file).write_text(text)
    with pytest.raises(ImageError):
        open_image(layout.folder)


@pytest.mark.parametrize("changes", [{"config": [1]}, {"config": {"Env": 3}}, {"config": {"Cmd": {"a": 1}}}, {"os": 3}])
def test_a_configuration_of_any_shape_is_refused_in_words(layout: OciLayout, changes: dict[str, Any]) -> None:
    layout.add(LAYERS)
    edit_config(layout, **changes)
    with pytest.raises(ImageError):
        open_image(layout.folder)


def test_a_manifest_of_long_ago_is_refused_by_its_form(layout: OciLayout) -> None:
    descriptor = layout.blob(b'{"schemaVersion": 1, "fsLayers": []}', "old")
    (layout.folder / "index.json").write_text(json.dumps({"manifests": [descriptor]}))
    with pytest.raises(ImageError, match=r"(?s)of a form that is not known.*version 2"):
        open_image(layout.folder)


def test_an_encrypted_layer_is_refused(layout: OciLayout) -> None:
    config = layout.blob(b"{}", "config")
    layer = {**layout.blob(b"x", "y"), "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip+encrypted"}
    descriptor = layout.blob(json.dumps({"config": config, "layers": [layer]}).encode(), "m")
    (layout.folder / "index.json").write_text(json.dumps({"manifests": [descriptor]}))
    with pytest.raises(ImageError, match="layer 1 is encrypted"):
        open_image(layout.folder)


def test_links_within_an_archive_are_followed_and_those_out_of_it_are_not(tmp_path: Path) -> None:
    path = docker_archive(tmp_path / "image.tar", LAYERS)
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "x", filter="data")
    shutil.move(tmp_path / "x/0/layer.tar", tmp_path / "x/1/other.tar")
    (tmp_path / "x/0/layer.tar").symlink_to("../1/other.tar")
    subprocess.run(["tar", "-C", tmp_path / "x", "-cf", tmp_path / "linked.tar", "."], check=True)
    assert contents(open_image(tmp_path / "linked.tar"), tmp_path) == {"a": DATA, "b": b"2"}
    (tmp_path / "x/0/layer.tar").unlink()
    (tmp_path / "x/0/layer.tar").symlink_to("/etc/passwd")
    subprocess.run(["tar", "-C", tmp_path / "x", "-cf", tmp_path / "linked.tar", "."], check=True)
    with pytest.raises(ImageError, match="layer 1 of 2 is missing"):
        merge(open_image(tmp_path / "linked.tar"), tmp_path / "made")


@pytest.mark.parametrize("found", [True, False])
def test_zstd_is_read_by_the_library_where_there_is_no_package(
    found: bool, layout: OciLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.add(LAYERS, compression="zstd")
    image = open_image(layout.folder)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    if found:
        assert contents(image, tmp_path) == {"a": DATA, "b": b"2"}
        return
    monkeypatch.setattr("cordee.machine.images.zstd.libzstd", lambda: None)
    with pytest.raises(ImageError, match=r"(?s)zstd, which nothing here can read.*cordee\[zstd\]"):
        merge(image, tmp_path / "made")


@pytest.mark.timeout(60)  # whoever opens a FIFO waits for ever
@pytest.mark.parametrize("which", ["index.json", "blobs/sha256"])
def test_a_part_that_is_no_file_is_refused_by_what_it_is(layout: OciLayout, which: str, tmp_path: Path) -> None:
    layout.add(LAYERS)
    path = layout.folder / which
    path = path if path.is_file() else max(path.iterdir(), key=lambda blob: blob.stat().st_size)
    for make, called in ((os.mkfifo, "a FIFO"), (lambda at: at.symlink_to("/dev/zero"), "a device")):
        path.unlink()
        make(path)
        with pytest.raises(ImageError, match=f"it is {called}, not a regular file"):
            merge(open_image(layout.folder), tmp_path / "made")


def test_an_index_that_is_nested_without_end_is_refused(layout: OciLayout) -> None:
    (layout.folder / "index.json").write_text("[" * 100_000)
    with pytest.raises(ImageError, match=r"index\.json is no JSON document: it is nested too deeply"):
        open_image(layout.folder)
