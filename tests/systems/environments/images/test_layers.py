"""Layers become one tree: upper over lower, whiteouts, links, and whatever a malicious image tries."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from cordee.machine.images.errors import ImageError
from cordee.testing.oci import LayerEntry, folder, hard_link, link, tar_of


def test_upper_layers_go_over_lower_ones(merged):
    lower = [folder("etc"), LayerEntry("etc/a", b"lower"), LayerEntry("etc/b", b"lower")]
    assert merged(lower, [LayerEntry("etc/b", b"upper"), LayerEntry("c", b"new")]) == {
        "etc/a": b"lower",
        "etc/b": b"upper",
        "c": b"new",
    }
    assert merged.found.hidden == 1


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_every_compression_is_read(merged, compression):
    data = os.urandom(300_000)
    assert merged([LayerEntry("a", data)], [LayerEntry("b", b"b")], compression=compression) == {"a": data, "b": b"b"}


def test_a_file_without_data_and_one_of_many_blocks_are_whole(merged):
    data = os.urandom(5_000_001)
    assert merged([LayerEntry("empty"), LayerEntry("big", data), LayerEntry("last", b"x")]) == {
        "empty": b"",
        "big": data,
        "last": b"x",
    }


def test_a_whiteout_takes_away_what_is_below_it(merged):
    lower = [folder("d"), LayerEntry("d/a", b"1"), LayerEntry("d/b", b"2"), folder("gone"), LayerEntry("gone/x", b"3")]
    assert merged(lower, [LayerEntry("d/.wh.a"), LayerEntry(".wh.gone")]) == {"d/b": b"2"}


def test_a_whiteout_spares_what_its_own_layer_puts_there(merged):
    lower = [folder("d"), LayerEntry("d/a", b"old"), LayerEntry("d/b", b"old")]
    assert merged(lower, [LayerEntry("d/a", b"new"), LayerEntry("d/.wh.a"), LayerEntry(".wh.d")]) == {"d/a": b"new"}


def test_an_opaque_folder_hides_all_that_lower_layers_have_in_it(merged):
    lower = [folder("d"), LayerEntry("d/a", b"1"), folder("d/e"), LayerEntry("d/e/f", b"2"), LayerEntry("other", b"3")]
    first = [folder("d"), LayerEntry("d/.wh..wh..opq"), LayerEntry("d/new", b"4")]
    assert merged(lower, first) == {"d/new": b"4", "other": b"3"}
    assert merged(lower, [LayerEntry("d/e/new", b"5"), *first]) == {"d/new": b"4", "d/e/new": b"5", "other": b"3"}


def test_a_whiteout_of_what_is_not_there_is_nothing(merged):
    assert merged(
        [LayerEntry("a", b"1")], [LayerEntry(".wh.b"), LayerEntry("x/y/.wh.z"), LayerEntry(".wh..wh.plnk")]
    ) == {"a": b"1"}


def test_a_later_layer_brings_back_what_one_has_taken_away(merged):
    assert merged([LayerEntry("a", b"1")], [LayerEntry(".wh.a")], [LayerEntry("a", b"3")]) == {"a": b"3"}


def test_a_folder_takes_the_place_of_a_file_and_the_other_way_round(merged):
    lower = [LayerEntry("f", b"file"), folder("d"), LayerEntry("d/x", b"in it")]
    assert merged(lower, [folder("f"), LayerEntry("f/y", b"1"), LayerEntry("d", b"file now")]) == {
        "f/y": b"1",
        "d": b"file now",
    }


def test_a_folder_over_a_folder_keeps_what_is_in_it_and_takes_the_newer_mode(merged):
    found = merged.whole([folder("d", 0o700), LayerEntry("d/x", b"1")], [folder("d", 0o755)])
    assert found == {"d": ("drwxr-xr-x", b""), "d/x": ("-rw-r--r--", b"1")}


def test_hard_links_share_the_data_also_with_what_is_hidden_below(merged):
    lower = [LayerEntry("perl", b"lower"), hard_link("perl5", "perl"), hard_link("perl6", "./perl")]
    assert merged(lower) == {"perl": b"lower", "perl5": b"lower", "perl6": b"lower"}
    assert merged(lower, [LayerEntry("perl", b"upper")]) == {"perl": b"upper", "perl5": b"lower", "perl6": b"lower"}
    assert merged(lower, [hard_link("again", "perl5"), LayerEntry(".wh.perl5")]) == {
        "perl": b"lower",
        "perl6": b"lower",
        "again": b"lower",
    }


def test_a_hard_link_may_name_what_its_own_layer_has_taken_away(merged):
    lower = [folder("d"), LayerEntry("d/a", b"data")]
    assert merged(lower, [LayerEntry(".wh.d"), hard_link("kept", "d/a")]) == {"kept": b"data"}
    assert merged(lower, [LayerEntry("d/.wh.a"), hard_link("kept", "d/a")]) == {"kept": b"data"}


def test_a_hard_link_to_a_symbolic_link_is_one(merged):
    assert merged([link("s", "target"), hard_link("h", "s")]) == {"s": "target", "h": "target"}


def test_an_entry_below_a_symbolic_link_lies_where_the_link_leads(merged):
    lower = [folder("usr"), folder("usr/lib"), LayerEntry("usr/lib/a", b"1"), link("lib", "usr/lib")]
    assert merged(lower, [LayerEntry("lib/b", b"2"), LayerEntry("lib/.wh.a")]) == {"usr/lib/b": b"2", "lib": "usr/lib"}


def test_names_of_any_bytes_are_kept(merged):
    names = [
        "new\nline",
        "tab\t",
        "ümlaut",
        "quote'\"",
        "back\\slash",
        "-dash",
        "b\udcff",
        "n" * 255,
        "d/" * 100 + "deep",
    ]
    entries = [LayerEntry(name, name.encode(errors="surrogateescape")) for name in names]
    assert merged(entries) == {name: name.encode(errors="surrogateescape") for name in names}


def test_layers_in_every_dialect_of_tar_are_read(merged):
    entries = [LayerEntry("p" * 90 + "/" + "q" * 90, b"long"), link("l", "t" * 150), LayerEntry("a", b"1")]
    plain = [LayerEntry("a", b"1"), folder("d/"), link("l", "a")]
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert merged(tar_of(entries, form)) == {"p" * 90 + "/" + "q" * 90: b"long", "l": "t" * 150, "a": b"1"}
    assert merged(tar_of(plain, tarfile.USTAR_FORMAT)) == {"a": b"1", "l": "a"}


def test_sparse_files_are_filled_with_zeros(merged, tmp_path):
    data = bytes(3_000_000) + b"middle" + bytes(2_000_000)
    with open(tmp_path / "holes", "wb") as file:
        file.seek(3_000_000)
        file.write(b"middle")
        file.truncate(len(data))
    for form in ("gnu", "posix"):
        command = ["tar", "-C", tmp_path, f"--format={form}", "-Sc", "holes"]
        layer = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        assert len(layer) < 50_000
        assert merged(layer) == {"holes": data}


def test_modes_and_the_root_are_kept(merged, tmp_path):
    merged(
        [folder("./", 0o711), LayerEntry("x", b"", mode=0o755), LayerEntry("w", b"", mode=0o640), folder("t", 0o1777)]
    )
    command = ["unsquashfs", "-lls", "-d", "", merged.made]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    modes = {line.rpartition(" ")[2]: line.split()[0] for line in shown.splitlines() if line}
    assert modes == {"": "drwx--x--x", "/x": "-rwxr-xr-x", "/w": "-rw-r-----", "/t": "drwxrwxrwt"}


def test_everything_belongs_to_who_imports_it_and_can_be_read_by_them(merged, tmp_path):
    entries = [
        LayerEntry("shadow", b"x", mode=0, more={"uid": 4_000_000, "gid": 42}),
        folder("locked", 0),
        LayerEntry("locked/x"),
    ]
    found = merged.whole(entries)
    assert found["shadow"][0] == "-r--------"
    assert found["locked"][0] == "drwx------"
    shown = subprocess.run(["unsquashfs", "-lln", merged.made], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1] for line in shown.splitlines() if line} == {f"{os.getuid()}/{os.getgid()}"}


# What a malicious image tries.


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "entry",
    [
        LayerEntry("../outside/victim", b"evil"),
        LayerEntry("a/../../outside/victim", b"evil"),
        LayerEntry("..", kind=tarfile.DIRTYPE),
        LayerEntry("a/..", b"evil"),
        hard_link("x", "../outside/victim"),
        hard_link("x", "a/../../outside/victim"),
        link("../outside/new", "x"),
        LayerEntry("../.wh.victim"),
    ],
    ids=lambda entry: f"{entry.name} {entry.link}",
)
def test_what_leads_out_of_the_image_is_refused_by_name(merged, entry, tmp_path):
    with pytest.raises(ImageError, match=r"layer 2 of 2: .* leads out of the image: '.*\.\."):
        merged([LayerEntry("fine", b"1")], [entry])
    assert not (merged.made).exists()


@pytest.mark.usefixtures("untouched")
def test_an_absolute_name_begins_at_the_root_of_the_image(merged, tmp_path):
    outside = str(tmp_path / "outside")
    found = merged(
        [
            LayerEntry(f"{outside}/victim", b"evil"),
            LayerEntry("//etc//passwd", b"theirs"),
            hard_link("h", "/etc/passwd"),
        ]
    )
    assert found == {f"{outside[1:]}/victim": b"evil", "etc/passwd": b"theirs", "h": b"theirs"}


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("way", ["{outside}", "../../../../../../../..{outside}", "hop"])
def test_an_entry_below_a_link_that_leads_out_stays_inside(merged, tmp_path, way):
    outside = str(tmp_path / "outside")
    entries = [link("hop", outside), link("way", way.format(outside=outside)), LayerEntry("way/victim", b"evil")]
    for layers in ([entries], [entries[:2], entries[2:]]):
        assert merged(*layers)[f"{outside[1:]}/victim"] == b"evil"


@pytest.mark.usefixtures("untouched")
def test_a_hard_link_through_a_link_that_leads_out_finds_nothing(merged, tmp_path):
    with pytest.raises(ImageError, match="a hard link names what is not in the image"):
        merged([link("way", str(tmp_path / "outside")), hard_link("x", "way/victim")])


@pytest.mark.usefixtures("untouched")
def test_a_whiteout_through_a_link_that_leads_out_removes_nothing(merged, tmp_path):
    merged([link("way", str(tmp_path / "outside")), LayerEntry("way/.wh.victim"), LayerEntry("way/.wh..wh..opq")])


@pytest.mark.parametrize("name", [".wh.", ".wh...", ".wh..", "a/.wh..."])
def test_a_whiteout_of_a_folder_itself_is_refused(merged, name):
    with pytest.raises(ImageError, match="whiteout leads out of its folder"):
        merged([folder("a")], [LayerEntry(name)])


def test_symbolic_links_in_circles_are_refused(merged):
    with pytest.raises(ImageError, match="in circles"):
        merged([link("a", "b"), link("b", "a"), LayerEntry("a/x", b"1")])


def test_links_may_lead_anywhere_as_they_are_followed_inside(merged):
    assert merged([link("a", "/etc/shadow"), link("b", "../../..")]) == {"a": "/etc/shadow", "b": "../../.."}


def test_device_nodes_are_left_out_and_counted(merged):
    devices = [
        LayerEntry(f"dev/{name}", kind=kind, mode=0o666, more={"devmajor": 1, "devminor": 1})
        for name, kind in (("mem", tarfile.CHRTYPE), ("sda", tarfile.BLKTYPE))
    ]
    assert merged([*devices, LayerEntry("a", b"1"), LayerEntry("pipe", kind=tarfile.FIFOTYPE)]) == {
        "a": b"1",
        "pipe": b"",
    }
    assert merged.found.devices == 2
    assert "2 device nodes" in merged.found.dropped()[0]


def test_no_file_keeps_a_bit_that_changes_its_user(merged):
    entries = [
        LayerEntry("su", b"1", mode=0o6755),
        folder("d", 0o2777),
        LayerEntry("plain", b"2"),
        hard_link("su2", "su"),
    ]
    found = merged.whole(entries)
    assert {mode for mode, _ in found.values()} == {"-rwxr-xr-x", "drwxrwxrwx", "-rw-r--r--"}
    assert merged.found.set_id == 1


def test_capabilities_of_files_are_left_out_and_counted(merged, tmp_path):
    merged([LayerEntry("ping", b"1", more={"pax_headers": {"SCHILY.xattr.security.capability": "\x01"}})])
    assert merged.found.attributes == 1
    shown = subprocess.run(["unsquashfs", "-s", merged.made], capture_output=True, text=True, check=True)
    assert "Xattrs are not stored" in shown.stdout


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([hard_link("x", "nowhere")], "what is not in the image"),
        ([folder("d"), hard_link("x", "d")], "names a folder"),
        ([LayerEntry("f", b"1"), LayerEntry("f/below", b"2")], "lies below one that is no folder"),
        ([LayerEntry("n" * 256, b"")], "longer than 255 bytes"),
        ([LayerEntry("d/" * 3000 + "x", b"")], "longer than 4095 bytes"),
        ([link("x", "t" * 5000)], "leads nowhere"),
        ([LayerEntry("x", kind=b"!")], "of a kind that is not known"),
    ],
)
def test_what_no_file_system_could_hold_is_refused(merged, entries, words):
    with pytest.raises(ImageError, match=f"layer 1 of 1: .*{words}"):
        merged(entries)


def test_a_sparse_file_that_would_fill_the_disk_is_refused(merged):
    sizes = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}
    data = b"0\n".ljust(512, b"\0")
    with pytest.raises(ImageError, match="a sparse file is longer"):
        merged([LayerEntry("bomb", data, more={"pax_headers": {**sizes, "GNU.sparse.name": "bomb"}})])


def test_a_header_that_is_damaged_is_not_taken_for_the_end(merged):
    good = tar_of([LayerEntry("a", b"1"), LayerEntry("b", b"2")])
    bad = bytearray(good)
    bad[1024 + 148] ^= 0x55  # the checksum of the second header
    with pytest.raises(ImageError, match="layer 1 of 1 is no tar archive, or a damaged one"):
        merged(bytes(bad))


@pytest.mark.parametrize("cut", [700, 1024 + 100, 3000])
def test_a_layer_that_was_made_of_half_an_archive_is_refused(merged, cut):
    with pytest.raises(ImageError, match="layer 1 of 1"):
        merged(tar_of([LayerEntry("a", b"1"), LayerEntry("b", b"2" * 3000)])[:cut])


@pytest.mark.parametrize("layer", [b"no archive at all" * 100, os.urandom(2000)])
def test_a_layer_that_is_no_archive_is_refused(merged, layer):
    with pytest.raises(ImageError, match="layer 1 of 1"):
        merged(layer)


def test_many_thousands_of_files_are_merged(merged, tmp_path):
    lower = [LayerEntry(f"d{index % 100}/f{index}", b"x" if index % 2 else b"") for index in range(3000)]
    found = merged(lower, [LayerEntry(f"d{index}/.wh.f{index}") for index in range(100)])
    assert len(found) == 2900


def test_an_image_of_too_many_entries_is_refused(merged, monkeypatch):
    monkeypatch.setattr("cordee.systems.environments.images.merged.MAX_ENTRIES", 10)
    with pytest.raises(ImageError, match="more than 10 entries"):
        merged([LayerEntry(str(number)) for number in range(6)], [LayerEntry(str(number)) for number in range(6)])


def test_no_tool_is_said_with_what_to_install(merged, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="squashfs-tools"):
        merged([LayerEntry("a", b"1")])


def test_what_the_tool_fails_with_is_said(merged, tmp_path: Path, monkeypatch):
    tool = tmp_path / "bin" / "mksquashfs"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'FATAL ERROR: it broke' >&2; exit 3\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    with pytest.raises(Exception, match="mksquashfs failed with 3: FATAL ERROR: it broke"):
        merged([LayerEntry("a", os.urandom(5_000_000))])
