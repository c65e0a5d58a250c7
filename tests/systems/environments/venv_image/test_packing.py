"""One squashfs of an environment: what is in it, that it works where it is mounted, and what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.machine.squashfs.errors import PackError
from cordee.systems.environments.venv_image.packing import pack

TAG = sys.implementation.cache_tag


def listed(file: Path) -> list[str]:
    """Return the paths in a squashfs."""
    done = subprocess.run(["unsquashfs", "-d", "", "-l", file], capture_output=True, text=True, check=True)
    return [line.lstrip("/") for line in done.stdout.splitlines() if line.startswith("/")]


def test_a_pack_works_where_it_is_mounted_and_the_folder_is_only_read(venv, unpacked, tmp_path):
    before = venv.state()
    packed = pack(venv.folder, tmp_path / "train.sqsh")
    assert venv.state() == before
    assert packed.packed_bytes == (tmp_path / "train.sqsh").stat().st_size
    venv.folder.rename(tmp_path / "away")
    unpacked(packed.file, venv.folder)
    assert venv.python_says("import sys, thing; print(sys.prefix, thing.value)") == f"{venv.folder} 1"
    assert subprocess.check_output([venv.folder / "bin" / "tool"], text=True) == "tool 1\n"


def test_byte_code_in_the_pack_is_used_whatever_the_time_of_its_source(venv, unpacked, tmp_path):
    there = tmp_path / "there"
    unpacked(pack(venv.folder, tmp_path / "train.sqsh", at=there).file, there)
    source = next(there.rglob("thing/__init__.py"))
    source.write_text("value = 'the source was read'\n")
    assert venv.python_says("import thing; print(thing.value, thing.__file__)", there) == f"1 {source}"


def test_byte_code_that_lies_there_is_reused_when_it_is_of_its_source(venv, unpacked, tmp_path):
    modes = {"timed": "TIMESTAMP", "hashed": "CHECKED_HASH", "never": "UNCHECKED_HASH", "stale": "TIMESTAMP"}
    for name, mode in modes.items():
        source = venv.add(f"site/thing/{name}.py", "value = 1\n")
        code = f"import py_compile as p; p.compile({str(source)!r}, invalidation_mode=p.PycInvalidationMode.{mode})"
        venv.python_says(code)
    venv.add("site/thing/stale.py", "value = 22\n")
    packed = pack(venv.folder, tmp_path / "train.sqsh", at=tmp_path / "there")
    assert (packed.reused, packed.compiled) == (3, 2)  # thing itself had no byte code
    there = unpacked(packed.file, tmp_path / "there")
    said = venv.python_says("import thing.timed, thing.stale; print(thing.timed.value, thing.stale.value)", there)
    assert said == "1 22"


def test_caches_and_byte_code_of_other_versions_stay_out(venv, tmp_path):
    for name in (f"__pycache__/gone.{TAG}.pyc", "__pycache__/__init__.cpython-27.pyc", ".mypy_cache/a.json"):
        venv.add(f"site/thing/{name}", "x")
    venv.add("site/only.pyc", "a module without source stays")
    names = listed(pack(venv.folder, tmp_path / "train.sqsh").file)
    inside = [name.split("site-packages/")[-1] for name in names if "/thing/" in name]
    assert sorted(name for name in inside if "cache" in name) == [
        "thing/__pycache__",
        f"thing/__pycache__/__init__.{TAG}.pyc",
    ]
    assert any(name.endswith("site-packages/only.pyc") for name in names)


def test_at_another_path_scripts_and_configuration_name_that_path(venv, unpacked, tmp_path):
    venv.add("bin/long", f"#!/bin/sh\n'''exec' \"{venv.folder}/bin/python\" \"$0\" \"$@\"\n' '''\n", 0o755)
    venv.add("bin/alike", f"#!/bin/sh\necho {venv.folder}-other {venv.folder}\n", 0o755)
    venv.add("bin/binary", bytes(venv.folder) + b"\0\1\2", 0o755)
    there = tmp_path / "there"
    packed = pack(venv.folder, tmp_path / "train.sqsh", at=there)
    unpacked(packed.file, there)
    assert subprocess.check_output([there / "bin" / "tool"], text=True) == "tool 1\n"
    assert f'"{there}/bin/python"' in (there / "bin" / "long").read_text()
    assert (there / "bin" / "alike").read_text().endswith(f"echo {venv.folder}-other {there}\n")
    assert bytes(venv.folder) in (there / "bin" / "binary").read_bytes()
    activated = ["bash", "-c", f". {there}/bin/activate && command -v python"]
    assert subprocess.check_output(activated, text=True) == f"{there}/bin/python\n"
    assert packed.mounts()[0] == f"{tmp_path}/train.sqsh:{there}:sqsh"
    assert packed.env()["PATH"].startswith(f"{there}/bin:/usr")


def test_a_moved_environment_is_packed_for_where_it_is(venv, unpacked, tmp_path):
    moved = venv.folder.rename(tmp_path / "moved")
    packed = pack(moved, tmp_path / "train.sqsh")
    there = unpacked(packed.file, tmp_path / "content")
    assert (there / "bin" / "tool").read_text().startswith(f"#!{moved}/bin/python\n")
    assert packed.warnings == ()


@pytest.mark.usefixtures("real")
def test_with_its_python_it_needs_nothing_of_where_that_was_installed(venv, unpacked, tmp_path):
    there = tmp_path / "there"
    packed = pack(venv.folder, tmp_path / "train.sqsh", at=there, with_python=True)
    unpacked(packed.file, there)
    code = "import sys, json, ssl, thing; print(sys.prefix, sys.base_prefix, json.__file__); print(*open('/proc/self/maps'))"
    first, *maps = venv.python_says(code, there).splitlines()
    assert first.split() == [str(there), f"{there}/.python", f"{there}/.python/lib/{packed_name()}/json/__init__.py"]
    libraries = {line.split()[-1] for line in maps if "libpython" in line}
    assert all(path.startswith(str(there)) for path in libraries)
    assert packed.mounts() == [f"{tmp_path}/train.sqsh:{there}:sqsh"]


def packed_name() -> str:
    return f"python{sys.version_info[0]}.{sys.version_info[1]}"


def test_what_is_not_inside_is_named_with_the_mounts_for_it(venv, tmp_path):
    source, other = tmp_path / "project" / "src", tmp_path / "other"
    for folder in (source, other / "b", tmp_path / "linked"):
        folder.mkdir(parents=True)
    venv.add("site/_project.pth", f"# a comment\nimport os\n{source}\n../site-packages/thing\n/not/there\n")
    venv.add("site/__editable___b_finder.py", f"MAPPING: dict[str, str] = {{'b': '{other}/b'}}\nNAMESPACES = {{}}\n")
    (venv.site / "linked").symlink_to(tmp_path / "linked")
    (venv.site / "inside").symlink_to("thing")
    packed = pack(venv.folder, tmp_path / "train.sqsh")
    paths = [each.path for each in packed.outside if str(each.path) != sys.base_prefix]
    assert paths == [source, other / "b", tmp_path / "linked"]
    assert [mount for mount in packed.mounts() if mount.startswith(str(tmp_path))][1:] == [str(path) for path in paths]


def test_a_source_that_does_not_compile_is_packed_and_named(venv, tmp_path):
    venv.add("site/thing/template.py", "def {{ name }}():\n")
    venv.add("site/thing/binary.py", b"\0\xff")
    packed = pack(venv.folder, tmp_path / "train.sqsh")
    assert [Path(name).name for name in packed.not_compiled] == ["binary.py", "template.py"]
    assert any(name.endswith("thing/template.py") for name in listed(packed.file))


def test_names_of_any_bytes_and_odd_files_are_kept_or_named(venv, unpacked, tmp_path):
    venv.add(os.fsdecode(b"share/caf\xe9\n line.py"), "kept")
    venv.add("share/\u65e5\u672c", "kept")
    secret = venv.add("share/secret", "for all who may read the pack", 0o600)
    program = venv.add("share/program", "", 0o4755)
    os.mkfifo(venv.folder / "share" / "pipe")
    packed = pack(venv.folder, tmp_path / "train.sqsh")
    there = unpacked(packed.file, tmp_path / "there")
    assert (there / "share" / os.fsdecode(b"caf\xe9\n line.py")).read_text() == "kept"
    assert (there / "share" / "\u65e5\u672c").read_text() == "kept"
    modes = [(there / "share" / path.name).stat().st_mode & 0o7777 for path in (secret, program)]
    assert modes == [0o644, 0o755]
    assert [warning for warning in packed.warnings if "pipe" in warning]


@pytest.mark.parametrize("compression", ["zstd", "lz4", "gzip", "xz", "none"])
def test_every_compression_can_be_read_again(venv, unpacked, tmp_path, compression):
    packed = pack(venv.folder, tmp_path / "train.sqsh", compression=compression)
    there = unpacked(packed.file, tmp_path / "there")
    assert next(there.rglob("thing/data.bin")).read_bytes() == next(venv.site.rglob("data.bin")).read_bytes()


def test_a_conda_prefix_is_packed_for_its_own_path_only(venv, tmp_path):
    (venv.folder / "conda-meta").mkdir()
    pack(venv.folder, tmp_path / "train.sqsh")
    with pytest.raises(UsageError, match="cannot be moved"):
        pack(venv.folder, tmp_path / "other.sqsh", at=Path("/opt/other"))


def test_wrong_arguments_say_what_to_do(venv, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    there = tmp_path / "there.sqsh"
    there.write_text("precious")
    for folder, output, more, text in (
        (plain, tmp_path / "x.sqsh", {}, "no Python environment"),
        (venv.folder, tmp_path / "x.sqsh", {"compression": "zip"}, "no such compression"),
        (venv.folder, tmp_path / "x.sqsh", {"at": Path("relative")}, "absolute path"),
        (venv.folder, venv.folder / "x.sqsh", {}, "in the folder that is packed"),
        (venv.folder, there, {}, "there already"),
        (venv.folder, tmp_path / "no" / "x.sqsh", {}, "no such folder"),
    ):
        with pytest.raises(UsageError, match=text):
            pack(folder, output, **more)
    assert there.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["envs", "plain", "there.sqsh"]
    pack(venv.folder, there, force=True)
    assert there.read_bytes().startswith(b"hsqs")


def test_an_environment_whose_base_is_gone_says_so(venv, tmp_path):
    venv.python.unlink()
    venv.python.symlink_to("/nowhere/python3")
    with pytest.raises(PackError, match="does not run") as caught:
        pack(venv.folder, tmp_path / "x.sqsh")
    assert "make the environment anew" in str(caught.value)
