from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from cordee.machine.private import open_private_folder, private_folder, private_folders, read_own_file


def stranger_makes(path):
    """As somebody else who was here first; without another user, a folder that everybody may write into."""
    path.mkdir(mode=0o700)
    path.chmod(0o777)
    if os.geteuid() == 0:
        os.chown(path, 1, 1)
        path.chmod(0o700)


@pytest.fixture
def base(tmp_path):
    """A place like /dev/shm: everybody may write there, and rename only what is their own."""
    folder = tmp_path / "shm"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_folder_is_made_once_and_nobody_else_may_look_in(base):
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: private_folder(base, "cordee-7"), range(32)))
    assert made == {base / "cordee-7"}
    assert mode(base / "cordee-7") == 0o700


def test_a_folder_of_mine_that_others_could_read_is_closed_to_them(base):
    (base / "cordee-7").mkdir()
    (base / "cordee-7").chmod(0o755)
    assert private_folder(base, "cordee-7") == base / "cordee-7"
    assert mode(base / "cordee-7") == 0o700


def a_link(path):
    path.symlink_to(path.parent)


def a_file(path):
    path.touch()


def open_to_all(path):
    path.mkdir()
    path.chmod(0o777)


@pytest.mark.parametrize("first", [stranger_makes, a_link, a_file, open_to_all])
def test_a_name_that_somebody_else_took_first_is_passed_over_for_one_that_is_found_again(base, first):
    first(base / "cordee-7")
    mine = private_folder(base, "cordee-7")
    assert mine.name.startswith("cordee-7-")
    assert mode(mine) == 0o700
    assert private_folder(base, "cordee-7") == mine
    assert list(private_folders(base, "cordee-7")) == [mine]
    with pytest.raises(OSError):
        open_private_folder(base / "cordee-7")


def test_the_folder_of_another_name_is_never_taken(base):
    stranger_makes(base / "cordee-7")
    private_folder(base, "cordee-70")
    assert private_folder(base, "cordee-7").name.startswith("cordee-7-")


def test_where_everybody_may_rename_everything_nothing_is_private(base):
    base.chmod(0o777)
    with pytest.raises(PermissionError, match="sticky"):
        private_folder(base, "cordee-7")


def test_only_a_regular_file_of_mine_is_read_and_never_waited_for(base):
    folder = private_folder(base, "cordee-7")
    (folder / "order").write_bytes(b"echo")
    (folder / "link").symlink_to(folder / "order")
    os.mkfifo(folder / "fifo")
    within = open_private_folder(folder)
    try:
        assert read_own_file("order", within, 4) == b"echo"
        with pytest.raises(OSError, match="longer than 3 bytes"):
            read_own_file("order", within, 3)
        for name in ("link", "fifo"):
            with pytest.raises(OSError):
                read_own_file(name, within, 4)
        if os.geteuid() == 0:
            os.chown(folder / "order", 1, 1)
            with pytest.raises(PermissionError, match="of this user"):
                read_own_file("order", within, 4)
        with pytest.raises(FileNotFoundError):
            read_own_file("none", within, 4)
    finally:
        os.close(within)
