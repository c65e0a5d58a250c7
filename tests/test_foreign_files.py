"""Files that others may have written are opened without waiting, or refused by what they are."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from cordee.core.errors import RunFolderError
from cordee.machine.foreign_files import open_folder, read_json, read_regular, regular, regular_below
from cordee.runs.folder import write_atomically


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


ODD = {
    "a FIFO": os.mkfifo,
    "a socket": _socket,
    "a folder": os.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize(("called", "make"), ODD.items())
def test_what_is_no_file_is_refused_by_what_it_is(called: str, make: Callable[[Path], object], tmp_path: Path) -> None:
    make(tmp_path / "odd")
    with pytest.raises(OSError, match=f"it is {called}, not a regular file"):
        read_regular(tmp_path / "odd")
    with pytest.raises(OSError, match=f"it is {'a link' if called == 'a device' else called}, not a regular file"):
        read_regular(tmp_path / "odd", tmp_path)


def test_links_are_followed_in_a_users_own_data_and_refused_below_a_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"content")
    (tmp_path / "data").symlink_to("elsewhere")
    (tmp_path / "elsewhere" / "link").symlink_to("file")
    assert read_regular(tmp_path / "data" / "link") == b"content"
    assert read_regular(tmp_path / "data" / "file", tmp_path / "data") == b"content"
    with pytest.raises(OSError, match="it is a link") as refused:
        read_regular(tmp_path / "data" / "link", tmp_path / "data")
    assert refused.value.filename == str(tmp_path / "data" / "link")
    with pytest.raises(OSError, match="data is a link, not a folder"):
        read_regular(tmp_path / "data" / "file", tmp_path)
    with pytest.raises(ValueError, match="leads out of"):
        open_folder(tmp_path / "data" / "..", tmp_path)


def test_a_file_is_read_to_its_limit_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    assert len(read_regular(path, limit_bytes=1 << 20)) == 1 << 20
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_regular(path, limit_bytes=1 << 20)
    with open(path, "rb", opener=regular) as file:
        assert os.get_blocking(file.fileno())
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(path)


def test_a_file_that_is_written_to_is_a_regular_one_too(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "link").symlink_to("mine")
    opener = regular_below(tmp_path)
    for name in ("fifo", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            opener(tmp_path / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.close(opener(tmp_path / "new", os.O_WRONLY | os.O_CREAT))
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600


def test_nothing_is_written_through_a_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report").symlink_to(tmp_path / "home")
    with pytest.raises(RunFolderError, match="report is a link, not a folder"):
        write_atomically(tmp_path / "run" / "report" / "index.html", "page", below=tmp_path / "run")
    write_atomically(tmp_path / "run" / "report" / "own", "text")
    assert os.listdir(tmp_path / "home") == ["own"]
