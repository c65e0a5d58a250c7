"""Images of each form: their packages, rights, keys and age, and what hostile ones come to."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
import struct
import subprocess
import tarfile
from contextlib import closing

import pytest

from cordee.machine.squashfs.reader import SquashfsFault, SquashfsReader
from cordee.systems.scan.images.found import ImageFinder, is_wanted
from cordee.systems.scan.images.layers import SpooledFile, look_at_configuration
from cordee.systems.scan.images.system_packages import rpm_packages, vendor_of
from cordee.testing.oci import LayerEntry, OciLayout, docker_archive, folder, link, tar_of

from .. import made_files

KEY = "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"
OS = b'ID=debian\nVERSION_ID="12"\n'
STATUS = b"""Package: libssl3
Status: install ok installed
Architecture: amd64
Source: openssl
Version: 3.0.14-1

Package: gone
Status: deinstall ok config-files
Version: 1

Package: bash
Status: deinstall ok installed
Version: 5.2-1
"""
METADATA = b"Metadata-Version: 2.1\nName: torch\nVersion: 2.4.0\n\nbody\n"
SITE = "usr/lib/python3/dist-packages"
CAPABILITY = {"pax_headers": {"SCHILY.xattr.security.capability": "\1\0\0\2\0 \0\0\0\0\0\0\0\0\0\0\0\0\0\0"}}
FILES = {
    "etc/os-release": OS,
    "var/lib/dpkg/status": STATUS,
    f"{SITE}/torch-2.4.0.dist-info/METADATA": METADATA,
    f"{SITE}/bad.pth": b"import os; os.system('x')\n",
    "root/.netrc": f"password {KEY}\n".encode(),
    "usr/bin/su": b"x",
    "opt/bash": b"x",
    "usr/share/doc/example.txt": f"token {KEY}\n".encode(),
}


def entries(files, rights=()):
    modes = {"usr/bin/su": 0o4755, "opt/bash": 0o4755}
    return [LayerEntry(name, data, mode=modes.get(name, 0o644)) for name, data in files.items()]


def root_of(tmp_path):
    root = tmp_path / "root"
    for name, data in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    for name in ("usr/bin/su", "opt/bash"):
        (root / name).chmod(0o4755)
    return root


def scan(path, *more):
    result = made_files.cordee("scan", path, "--json", *more)
    document = json.loads(result.output)
    return document, {(one["rule"], one["severity"]) for one in document["findings"]}


def squashed(root, tmp_path, compression="zstd"):
    image = tmp_path / f"{compression}.sqsh"
    subprocess.run(
        ["mksquashfs", root, image, "-comp", compression, "-quiet", "-no-progress", "-noappend"],
        check=True,
        capture_output=True,
    )
    return image


EXPECTED = {
    ("package-pth", "block"), ("image-secret-layer", "block"), ("image-setuid", "warn"), ("image-setuid-odd", "unknown"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["folder", "squashfs", "layout", "archive", "docker"])
def test_an_image_of_each_form_is_looked_into(tmp_path, form):
    root = root_of(tmp_path)
    layers = [entries(FILES)]
    if form == "folder":
        place = root
    elif form == "squashfs":
        place = squashed(root, tmp_path)
    else:
        layout = OciLayout(tmp_path / "layout")
        layout.add(layers, config={"User": "me"})
        place = layout.folder
        if form == "archive":
            place = layout.archive(tmp_path / "image.tar")
        if form == "docker":
            place = docker_archive(tmp_path / "image.tar", layers, config={"User": "me"})
    document, found = scan(place, "--sbom", tmp_path / "bom.json")
    assert found == EXPECTED
    assert {(one["name"], one["version"], one["kind"]) for one in document["packages"]} == {
        ("libssl3", "3.0.14-1", "deb"), ("bash", "5.2-1", "deb"), ("torch", "2.4.0", "pypi"),
    }  # fmt: skip
    urls = {one["purl"] for one in json.loads((tmp_path / "bom.json").read_text())["components"]}
    assert "pkg:deb/debian/libssl3@3.0.14-1?arch=amd64&distro=debian-12&upstream=openssl" in urls
    assert KEY not in json.dumps(document)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("form", ["folder", "squashfs", "layout", "docker"])
def test_models_in_an_image_are_looked_at_wherever_they_lie_and_whatever_they_are_called(tmp_path, form):
    canary = tmp_path / "canary"
    bad = pickle.dumps(made_files.Payload(canary))
    files = {
        "etc/os-release": OS,
        "models/bert.png": made_files.zipped({"a/data.pkl": bad, "a/data/0": os.urandom(3 << 20)}),  # spooled
        "srv/old.bin": bytes(5 << 20) + b"x",
        "home/me/own.pkl": made_files.call("mine.model", "Config"),
        "usr/local/share/weights": b"cposix\nsystem\n(S'x'\ntR.",
        "usr/lib/python3/dist-packages/numpy/tests/data.pkl": bad,  # everybody's
        "opt/conda/lib/python3.11/test/bad.pickle": bad,
        "opt/ok.npz": made_files.zipped({"a.npy": b"\x93NUMPY\1\0\x10\0{'descr':'<f4'}\n"}),
        "opt/libx.so": b"\x7fELF" + bad,
    }
    place = tmp_path / "root"
    if form in ("folder", "squashfs"):
        for name, data in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        place = squashed(place, tmp_path) if form == "squashfs" else place
    else:
        later = [LayerEntry("home/me/.wh.own.pkl"), *entries({"opt/new.pkl": made_files.call("mine.model", "Config")})]
        layers = [entries({**files, "gone/x.pkl": bad}), [LayerEntry(".wh.gone"), *later]]
        if form == "docker":
            place = docker_archive(tmp_path / "image.tar", layers, config={"User": "me"})
        else:
            layout = OciLayout(tmp_path / "layout")
            layout.add(layers, config={"User": "me"}, compression="zstd")
            place = layout.folder
    document, _ = scan(place)
    own = "/home/me/own.pkl" if form in ("folder", "squashfs") else "/opt/new.pkl"
    assert {(one["rule"], one["where"]) for one in document["findings"]} == {
        ("model-pickle-call", "/models/bert.png/a/data.pkl"),
        ("model-pickle-call", "/usr/local/share/weights"),
        ("model-pickle-name", own),
    }
    assert {rule for rule, _ in scan(place, "--allow", "mine.model.Config")[1]} == {"model-pickle-call"}
    assert not canary.exists()


def test_a_model_that_nothing_can_take_is_unknown_and_hides_no_other(tmp_path):
    spool = SpooledFile(os.open("/dev/full", os.O_RDWR))
    for _ in range(3):
        assert spool.write(bytes(1 << 20)) == 1 << 20
    assert spool.fault == "No space left on device"


@pytest.mark.parametrize("compression", ["gzip", "xz", "lz4", "lzma"])
def test_squashfs_of_every_compression_is_read(tmp_path, compression):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "empty").touch()
    contents = {f"a/{n}": os.urandom(1000 * n) + bytes(200_000) + b"end" for n in range(4)} | {"b": b"small"}
    for name, data in contents.items():
        (tmp_path / "root" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "root" / name).write_bytes(data)
    (tmp_path / "root" / "link").symlink_to("b")
    image = squashed(tmp_path / "root", tmp_path, compression)
    with open(image, "rb") as file:
        reader = SquashfsReader(file.fileno())
        nodes = {node.path: node for node in reader.walk()}
        assert {name: reader.read(nodes[name], 1 << 30) for name in contents} == contents
        assert reader.read(nodes["a/3"], 10) == contents["a/3"][:10]
        for offset in (0, 2999, 131_071, 131_072, 202_999, 203_003, 1 << 40):
            assert reader.read(nodes["a/3"], 140_000, offset) == contents["a/3"][offset : offset + 140_000]
        assert (nodes["link"].kind, reader.read(nodes["empty"], 10)) == ("link", b"")


def test_capabilities_are_seen_in_layers_and_in_squashfs(tmp_path):
    layout = OciLayout(tmp_path / "layout")
    layout.add([[LayerEntry("usr/bin/ping", b"x", mode=0o755, more=CAPABILITY)]], config={"User": "me"})
    assert scan(layout.folder)[1] == {("image-capability", "warn")}
    if os.getuid() == 0:
        (tmp_path / "root" / "usr").mkdir(parents=True)
        (tmp_path / "root" / "usr" / "ping").touch()
        os.setxattr(
            tmp_path / "root" / "usr" / "ping",
            "security.capability",
            bytes.fromhex("0100000200200000000000000000000000000000"),
        )
        assert scan(squashed(tmp_path / "root", tmp_path))[1] == {("image-capability", "warn")}


def test_what_a_later_layer_deletes_is_no_longer_installed_and_its_keys_are_still_there(tmp_path):
    layout = OciLayout(tmp_path / "layout")
    layers = [
        entries({"etc/os-release": OS, "app/.env": f"HF_TOKEN={KEY}\n".encode(), "x-packages/site-packages/a-1.dist-info/METADATA": b"Name: a\nVersion: 1\n\n"}),
        [LayerEntry("app/.wh..env"), LayerEntry("x-packages/.wh.site-packages"), *entries({"var/lib/dpkg/status": STATUS})],
        entries({"var/lib/dpkg/status": STATUS.replace(b"5.2-1", b"5.2-9")}),
    ]  # fmt: skip
    layout.add(layers, config={"User": "me"}, compression="zstd")
    document, found = scan(layout.folder)
    assert {(one["name"], one["version"]) for one in document["packages"]} == {
        ("libssl3", "3.0.14-1"),
        ("bash", "5.2-9"),
    }
    assert found == {("image-secret-layer", "block")}
    assert "in layer 1: a later one replaces or deletes the file" in document["findings"][0]["text"]


def test_what_an_image_says_of_itself_is_looked_at(tmp_path):
    layout = OciLayout(tmp_path / "layout")
    layout.add([entries({"a": b"x"})], config={"Env": ["PATH=/bin", f"HF_TOKEN={KEY}"], "Labels": {"a": "b"}})
    assert scan(layout.folder)[1] == {("image-root", "warn"), ("image-secret-config", "block")}
    finder = ImageFinder("x")
    document = {
        "created": "2020-01-01T00:00:00Z",
        "config": {"User": "1000:1000"},
        "history": [{"created_by": f"ARG T={KEY}"}, 7],
    }
    look_at_configuration(document, finder, 1.7e9)
    look_at_configuration(
        {"created": "2999-01-01T00:00:00.123456789Z", "config": {"User": "root", "Env": 7, "Labels": 7}}, finder, 1.7e9
    )
    look_at_configuration({"created": 7, "config": 7}, finder, 1.7e9)
    assert [(one.rule, one.severity) for one in finder.facts().sights] == [
        ("image-old", "warn"), ("image-secret-config", "block"), ("image-root", "warn"), ("image-date", "unknown"),
    ]  # fmt: skip


def rpm_header(name, version, release, epoch=None):
    words = {1000: name, 1001: version, 1002: release, 1022: "x86_64", 1044: f"src-{version}-{release}.src.rpm"}
    data, entries_ = b"", []
    for tag, text in words.items():
        entries_.append(struct.pack(">4I", tag, 6, len(data), 1))
        data += text.encode() + b"\0"
    if epoch is not None:
        data += bytes(-len(data) % 4)
        entries_.append(struct.pack(">4I", 1003, 4, len(data), 1))
        data += struct.pack(">I", epoch)
    return struct.pack(">II", len(entries_), len(data)) + b"".join(entries_) + data


def test_packages_of_rpm_and_apk_are_read_from_their_databases(tmp_path):
    data = sqlite3.connect(tmp_path / "rpmdb.sqlite")
    data.execute("pragma journal_mode = wal")
    data.execute("create table Packages (hnum integer primary key, blob blob)")
    data.executemany(
        "insert into Packages (blob) values (?)",
        [(rpm_header("glibc", "2.34", "60.el9"),), (rpm_header("perl", "5.32", "1", 4),)],
    )
    data.commit()
    data.close()
    root = tmp_path / "rocky"
    for name, content in {
        "etc/os-release": b'ID="rocky"\nVERSION_ID="9.3"\n',
        "var/lib/rpm/rpmdb.sqlite": (tmp_path / "rpmdb.sqlite").read_bytes(),
        "lib/apk/db/installed": b"P:musl\nV:1.2.5-r0\no:musl\nL:MIT\n\nP:libcrypto3\nV:3.3.1-r0\no:openssl\n",
        "usr/x": b"",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    document, found = scan(root)
    assert found == set()
    assert {(one["name"], one["version"]) for one in document["packages"]} == {
        ("glibc", "2.34-60.el9"), ("perl", "4:5.32-1"), ("musl", "1.2.5-r0"), ("libcrypto3", "3.3.1-r0"),
    }  # fmt: skip
    for broken in (b"SQLite format 3\0" + bytes(4000), b"\0" * 4096, (tmp_path / "rpmdb.sqlite").read_bytes()[:5000]):
        (root / "var/lib/rpm/rpmdb.sqlite").write_bytes(broken)
        assert scan(root)[1] == {("image-unreadable", "unknown")}


def test_sizes_and_places_of_system_databases_are_those_that_their_systems_have(tmp_path):
    installed = b"P:musl\nV:1.2.5-r0\nI:667648\n"
    finder = ImageFinder("wolfi")
    finder.content("usr/lib/os-release", b"ID=wolfi\nVERSION_ID=20230201\n")
    finder.content("usr/lib/apk/db/installed", installed)
    (musl,) = finder.facts().packages
    assert (musl.bytes, musl.distribution) == (667648, "wolfi-20230201")
    assert is_wanted("usr/lib/apk/db/installed", len(installed))
    header = struct.pack(">II4I4I", 2, 12, 1000, 6, 0, 1, 1009, 4, 8, 1) + b"glibc\0\0\0" + struct.pack(">I", 6_000_000)
    with closing(sqlite3.connect(":memory:")) as data:
        data.execute("create table Packages (hnum integer primary key, blob blob)")
        data.execute("insert into Packages (blob) values (?)", (header,))
        data.commit()
        (glibc,) = rpm_packages(data.serialize(), "", "fedora")
    assert glibc.bytes == 6_000_000


def test_licences_of_debian_are_names_whichever_form_their_text_has(tmp_path):
    finder = ImageFinder("debian")
    finder.content("etc/os-release", OS)
    names = ("dep5", "prose", "linked")
    status = "\n".join(f"Package: {name}\nStatus: install ok installed\nVersion: 1\nSource: {name}\n" for name in names)
    finder.content("var/lib/dpkg/status", status.replace("Source: linked", "Source: dep5 (2)").encode())
    finder.content("usr/share/doc/dep5/copyright", b"Format: x\n\nFiles: *\nLicense: MIT\n\nLicense: GPL-2+\n text\n")
    finder.content(
        "usr/share/doc/prose/copyright",
        b"License: By using this you agree.\nThe text is in /usr/share/common-licenses/LGPL-2.1.\n",
    )
    found = {each.name: each.licence for each in finder.facts().packages}
    assert found == {"dep5": "MIT\nGPL-2+", "prose": "LGPL-2.1", "linked": "MIT\nGPL-2+"}


def test_packages_of_python_that_are_described_in_older_ways_are_found(tmp_path):
    finder = ImageFinder("old")
    for path in ("opt/site/filey-3.0.egg-info", "opt/site/eggy-3.0.egg/EGG-INFO/PKG-INFO"):
        content = b"Metadata-Version: 1.1\nName: " + path.split("/")[2].partition("-")[0].encode() + b"\nVersion: 3.0\n"
        assert is_wanted(path, len(content))
        finder.content(path, content)
    assert sorted(each.name for each in finder.facts().packages) == ["eggy", "filey"]


@pytest.mark.parametrize(
    ("system", "vendor"),
    [({"ID": "ubuntu"}, "ubuntu"), ({"ID": "rhel"}, "redhat"), ({"ID": "opensuse-leap"}, "opensuse"), ({}, "")],
)
def test_systems_have_the_names_that_package_urls_give_them(system, vendor):
    assert vendor_of(system) == vendor


def test_vulnerabilities_of_a_distributions_packages_are_said_to_be_unknown(tmp_path):
    document, found = scan(root_of(tmp_path))
    assert found == EXPECTED
    said = "vulnerabilities of 2 packages of a distribution are unknown here: look them up with `grype` or `trivy`"
    assert said in document["notes"]


def hostile(tmp_path):
    """Yield images that nobody should make."""
    deep = [folder("/".join(["a"] * depth)) for depth in range(1, 600)]
    sparse = LayerEntry(
        "etc/big.conf",
        more={"pax_headers": {"GNU.sparse.major": "0", "GNU.sparse.size": str(1 << 50), "GNU.sparse.map": "0,0"}},
    )
    for number, layers in enumerate(
        [
            [entries({"../../etc/passwd": b"x"})],
            [[link("a", "b"), link("b", "a"), LayerEntry("a/x", b"x")]],
            [[link("etc", "../../../../etc"), LayerEntry("etc/passwd", b"x")]],
            [deep],
            [[sparse]],
            [[LayerEntry("dev/sda", kind=tarfile.BLKTYPE), LayerEntry("fifo", kind=tarfile.FIFOTYPE)]],
            [tar_of(entries({"a": b"x" * 2000}))[:1200]],
            [b"this is no archive" * 100],
        ]
    ):
        layout = OciLayout(tmp_path / f"hostile{number}")
        layout.add(layers, config={"User": "me"})
        yield layout.folder
    broken = OciLayout(tmp_path / "broken")
    broken.add([entries({"a": b"x"})])
    for blob in (broken.folder / "blobs" / "sha256").iterdir():
        blob.write_bytes(blob.read_bytes()[:-3])
    yield broken.folder
    shutil.copytree(broken.folder, tmp_path / "fifo")
    for blob in (tmp_path / "fifo" / "blobs" / "sha256").iterdir():
        blob.unlink()
        os.mkfifo(blob)
    yield tmp_path / "fifo"


@pytest.mark.usefixtures("real")
def test_hostile_images_hurt_nobody_and_are_not_clean(tmp_path):
    verdicts = [scan(place)[0]["verdict"] for place in hostile(tmp_path)]
    assert verdicts == [*["block"] * 3, "clean", "unknown", "clean", *["unknown"] * 4]
    assert not (tmp_path.parent / "etc").exists()


def test_a_squashfs_that_is_damaged_anywhere_is_a_fault_and_nothing_worse(tmp_path):
    whole = squashed(root_of(tmp_path), tmp_path).read_bytes()
    place = tmp_path / "bad.sqsh"
    for at in range(4, len(whole), max(1, len(whole) // 60)):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with open(place, "rb") as file:
            try:
                reader = SquashfsReader(file.fileno())
                for node in reader.walk():
                    reader.read(node, 1 << 20)
                    reader.attributes(node)
            except SquashfsFault:
                pass
    place.write_bytes(whole[:300])
    assert scan(place)[1] == {("image-unreadable", "unknown")}


def test_an_old_squashfs_is_told(tmp_path):
    image = squashed(root_of(tmp_path), tmp_path)
    content = bytearray(image.read_bytes())
    content[8:12] = struct.pack("<I", 1_500_000_000)
    image.write_bytes(content)
    assert ("image-old", "warn") in scan(image)[1]
