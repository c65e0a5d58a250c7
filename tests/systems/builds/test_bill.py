"""What an image's lock adds to its bill of materials."""

from __future__ import annotations

import json
from pathlib import Path

from cordee.systems.builds.bill import write_image_bill
from cordee.systems.builds.lock import BuildPackage

STATUS = "\n".join(
    f"Package: libc6\nStatus: install ok installed\nArchitecture: {architecture}\nVersion: 1:2.36-9\n"
    for architecture in ("amd64", "i386")
)


def test_a_package_for_two_processors_has_the_hash_of_the_file_that_is_its_own(tmp_path: Path):
    for name, text in {"etc/os-release": "ID=debian\n", "var/lib/dpkg/status": STATUS, "usr/x": ""}.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    digest = "sha256:" + 64 * "a"
    locked = BuildPackage("deb", "libc6", "1:2.36-9", digest, "libc6_1%3a2.36-9_i386.deb", 1)
    written = write_image_bill(tmp_path / "bill", tmp_path / "root", "two", [locked], 86_400)
    assert [each.hash for each in written.packages] == ["", digest]
    document = json.loads((tmp_path / "bill").read_text())
    assert [len(each.get("hashes", ())) for each in document["components"]] == [0, 1]
    assert "properties" not in document["metadata"]["component"]
    assert document["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"


def test_a_system_whose_packages_cannot_be_listed_is_said_to_be_so(tmp_path: Path):
    for name, text in {
        "etc/os-release": "ID=arch\n",
        "var/lib/pacman/local/ALPM_DB_VERSION": "9\n",
        "usr/x": "",
    }.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text)
    write_image_bill(tmp_path / "bill", tmp_path / "root", "arch", [])
    (note,) = json.loads((tmp_path / "bill").read_text())["metadata"]["component"]["properties"]
    assert "no packages of dpkg, RPM or apk were found" in note["value"]


def test_names_of_packages_that_are_shown_do_not_steer_the_terminal(tmp_path: Path):
    info = tmp_path / "root/usr/lib/python3/dist-packages/x-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: \x1b]0;title\x07x\nVersion: 1\n")
    (info / "RECORD").write_text("x.py,,9000\n")
    (tmp_path / "root/etc").mkdir()
    (tmp_path / "root/etc/os-release").touch()
    largest = write_image_bill(tmp_path / "bill", tmp_path / "root", "x", []).largest()
    assert largest.endswith("x 9 kB")
    assert "\x1b" not in largest
    assert "\x07" not in largest
