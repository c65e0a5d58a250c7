"""The store: whole images or none, whatever is killed, full, damaged, or done twice at once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cordee.core.ports.images import ImageAtHand
from cordee.machine.images.errors import ImageError, NoStoreError, StoreError
from cordee.machine.images.oci import open_image
from cordee.systems.environments.images.image_import import import_image
from cordee.systems.environments.images.store.garbage import collect, removable, remove
from cordee.systems.environments.images.store.image_store import ImageStore, own_store, store_folder
from cordee.systems.environments.images.store.lock import FolderLock, identity, is_gone
from cordee.systems.environments.images.store.records import StoredImage, verify
from cordee.systems.environments.workshop import WORKSHOP
from cordee.testing.oci import LayerEntry, OciLayout

from .conftest import wait_for_no_process

DAY_S = 86400.0


@pytest.fixture
def layout(layout: OciLayout) -> OciLayout:
    data = os.urandom(200_000)
    layout.add(
        [[LayerEntry("a", data)], [LayerEntry("b", b"2")]], config={"Env": ["A=1"], "Cmd": ["sh"], "WorkingDir": "/w"}
    )
    return layout


def imported(store: ImageStore, layout: OciLayout, **more: Any) -> StoredImage:
    return import_image(open_image(layout.folder), store, origin="here", **more)


def unused_for(image: StoredImage, days: float) -> None:
    then = time.time() - days * DAY_S
    os.utime(image.path.parent / "image.json", (then, then))


def debris(store: ImageStore) -> list[str]:
    return [str(path) for place in (store.temporary_folder, store.locks_folder) for path in store.listing(place)]


def test_an_image_is_kept_with_what_it_says_of_itself(store: ImageStore, layout: OciLayout) -> None:
    image = imported(store, layout)
    assert (image.config.env, image.config.command, image.config.workdir) == ({"A": "1"}, ("sh",), "/w")
    assert image.digest == open_image(layout.folder).digest
    assert image.path.stat().st_size == image.size_bytes
    assert (image.contents["files"], image.origin) == (2, "here")
    assert image.made_by.startswith("mksquashfs version")
    assert store.find(image.digest) == image
    verify(image)
    assert debris(store) == []


def test_an_image_that_is_there_is_not_imported_again(store: ImageStore, layout: OciLayout) -> None:
    first, said = imported(store, layout), []
    assert imported(store, layout, say=said.append).path == first.path
    assert said == []


def test_two_images_that_come_at_once_do_not_go_over_the_quota(
    store: ImageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    for name in ("one", "two"):
        made = OciLayout(tmp_path / name)
        made.add([[LayerEntry(name, name.encode())]])
        kept.append(imported(store, made))
    both = threading.Barrier(2)

    def copy_slowly(source: Path, target: Path) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(timeout=2)
        Path(target).write_bytes(Path(source).read_bytes())

    monkeypatch.setattr(shutil, "copyfile", copy_slowly)

    def take(image: StoredImage) -> bool:
        hand = ImageAtHand("squashfs", str(image.path), image.digest, {}, "", (), ())
        try:
            WORKSHOP.copy_to(hand, "name", tmp_path / "stage", kept[0].size_bytes * 3 // 2)
        except StoreError:
            return False
        return True

    with ThreadPoolExecutor() as pool:
        assert sorted(pool.map(take, kept)) == [False, True]
    assert len(ImageStore(tmp_path / "stage").images()) == 1


def test_a_name_stays_with_its_digest_until_it_is_pinned_anew(store: ImageStore) -> None:
    assert store.pin("x:1", "sha256:aa") is None
    before = store.pin("x:1", "sha256:bb")
    assert before is not None
    assert before.digest == "sha256:aa"
    now = store.pinned("x:1")
    assert now is not None
    assert now.digest == "sha256:bb"
    assert [name.name for name in store.names()] == ["x:1"]
    assert store.unpin("x:1")
    assert not store.unpin("x:1")


def test_the_store_is_where_the_edf_tools_have_it(tmp_path: Path) -> None:
    own, scratch, cache = {"EDF_IMAGESTORE": "/own"}, {"SCRATCH": "/scratch/ada"}, {"XDG_CACHE_HOME": "/cache"}
    assert store_folder({**own, **scratch, **cache}, "/site") == Path("/own")
    assert store_folder({**scratch, **cache}, "/site") == Path("/scratch/ada/.edf_imagestore")
    assert store_folder(cache, "/site") == Path("/site")
    assert store_folder(cache) == Path("/cache/cordee/images")


@pytest.mark.parametrize("given", ["images", "./images", "../images"])
def test_a_relative_path_is_no_store(given: str) -> None:
    with pytest.raises(NoStoreError, match=f"EDF_IMAGESTORE is a relative path.*\n.*given: +{given}"):
        own_store({"EDF_IMAGESTORE": given})


def test_an_image_that_is_damaged_later_is_found_and_replaced(store: ImageStore, layout: OciLayout) -> None:
    image = imported(store, layout)
    data = bytearray(image.path.read_bytes())
    data[500] ^= 1
    image.path.write_bytes(data)
    with pytest.raises(ImageError, match="damaged since it was imported"):
        verify(image)
    (image.path.parent / "image.json").write_text("{half")
    assert store.find(image.digest) is None
    verify(imported(store, layout))


# Interrupted.


class Killed:
    """Runs something in a child that is killed at the nth time that it touches the file system or starts a process."""

    EVENTS = ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.utime", "shutil.rmtree", "subprocess.Popen")

    def __init__(self, work: Callable[[], object], below: Path) -> None:
        self.work, self.below = work, str(below)

    def __call__(self, number: int) -> bool:
        """Return whether it was killed before it was done."""
        child = os.fork()
        if child == 0:
            code = 1
            try:
                self._die_at(number)
                self.work()
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status)

    def _die_at(self, number: int) -> None:
        count = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event in self.EVENTS and (event == "subprocess.Popen" or self.below in str(arguments[:2])):
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)


@pytest.mark.usefixtures("real")
def test_an_import_may_be_killed_at_any_moment(store: ImageStore, layout: OciLayout) -> None:
    killed = Killed(lambda: imported(store, layout), store.folder)
    moments = 0
    while killed(moments + 1):  # each begins with what the one before has left, its lock too
        moments += 1
        for image in store.images():
            verify(image)
            store.remove(image)
    assert moments > 20
    wait_for_no_process(str(store.folder))
    [image] = store.images()
    verify(image)
    assert debris(store) != []
    collect(store, removable(store))
    assert debris(store) == []
    assert store.images() == [image]


def test_a_removal_may_be_killed_at_any_moment(store: ImageStore, layout: OciLayout) -> None:
    image = imported(store, layout)
    store.pin("x:1", image.digest)
    moments = 0
    while Killed(lambda: store.remove(image), store.folder)(moments + 1):
        moments += 1
        collect(store, removable(store))
        assert debris(store) == []
        verify(imported(store, layout))
    assert moments > 3
    assert store.images() == []


def test_two_imports_at_once_make_one_image(store: ImageStore, layout: OciLayout, tmp_path: Path) -> None:
    start, children = tmp_path / "start", []
    for number in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                while not start.exists():
                    time.sleep(0.001)
                said: list[str] = []
                imported(store, layout, say=said.append)
                (tmp_path / f"said-{number}").write_text("\n".join(said))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    start.touch()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    said = [path.read_text() for path in tmp_path.glob("said-*")]
    assert sum("writing layer" in text for text in said) == 1
    assert len(store.images()) == 1
    assert debris(store) == []


def test_a_full_store_is_said_to_be_full_and_holds_no_debris(layout: OciLayout, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    layout.add([[LayerEntry("big", os.urandom(3_000_000))]], tag="big")
    script = (
        "import sys, pathlib\n"
        "from cordee.systems.environments.images import ImageStore, StoreError\n"
        "from cordee.systems.environments.images.image_import import import_image\n"
        "from cordee.machine.images.oci import open_image\n"
        "store = ImageStore(pathlib.Path(sys.argv[1]))\n"
        "try: import_image(open_image(pathlib.Path(sys.argv[2]), tag='big'), store, origin='here')\n"
        "except StoreError as error: print(error)\n"
        "print([str(path) for path in store.folder.glob('*/*')])\n"
    )
    mounted = f'mount -t tmpfs -o size=1m none "{place}" && exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", mounted, "sh", sys.executable, "-c", script, place, layout.folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "there is no space left in the image store" in done.stdout
    assert "cordee env gc" in done.stdout
    assert done.stdout.endswith("[]\n")


def test_a_store_that_cannot_be_written_is_named(layout: OciLayout, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Exception, match=r"(?s)the image store cannot be used.*EDF_IMAGESTORE"):
        imported(ImageStore(tmp_path / "file" / "store"), layout)


# Locks.


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    said: list[str] = []
    with FolderLock(tmp_path / "lock"):
        other = threading.Thread(target=lambda: FolderLock(tmp_path / "lock", said.append).__enter__(), daemon=True)
        other.start()
        while not said:
            time.sleep(0.001)
        assert identity() in said[0]
    other.join(10)
    assert not other.is_alive()


def test_the_lock_of_a_process_that_is_gone_is_taken_over(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        FolderLock(tmp_path / "lock").__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "lock").is_dir()
    with FolderLock(tmp_path / "lock"):
        assert os.listdir(tmp_path / "lock") == [identity()]
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("silent_s", "taken"), [(5.0, False), (120.0, True)])
def test_the_lock_of_another_machine_is_taken_over_when_it_is_silent(
    tmp_path: Path, silent_s: float, taken: bool
) -> None:
    owner = tmp_path / "lock" / "elsewhere-0123abcd-4026531836-77-1234"
    owner.parent.mkdir()
    owner.touch()
    then = time.time() - silent_s
    os.utime(owner, (then, then))
    said: list[str] = []
    lock = FolderLock(tmp_path / "lock", said.append)
    thread = threading.Thread(target=lock.__enter__, daemon=True)
    thread.start()
    if not taken:
        while not said:
            time.sleep(0.001)
        assert os.listdir(tmp_path / "lock") == [owner.name]
        shutil.rmtree(owner.parent)
    thread.join(10)
    assert os.listdir(tmp_path / "lock") == [identity()]
    lock.__exit__(None, None, None)


def test_a_process_is_told_from_another_with_its_number() -> None:
    own = identity()
    assert not is_gone(own)
    assert is_gone(own.rpartition("-")[0] + "-1")
    assert not is_gone("elsewhere-0-0-1-1")
    assert not is_gone("no identity")


# Garbage.


def test_what_nothing_names_any_more_goes_when_it_is_not_in_use(store: ImageStore, layout: OciLayout) -> None:
    image = imported(store, layout)
    assert removable(store) == []
    unused_for(image, days=8)
    assert [each.reason for each in removable(store)] == ["no name means it any more"]
    store.pin("x:1", image.digest)
    assert removable(store) == []
    assert [each.size_bytes for each in removable(store, older_than_s=7 * DAY_S)] == [image.size_bytes]
    assert removable(store, older_than_s=9 * DAY_S) == []
    collect(store, removable(store, older_than_s=7 * DAY_S))
    assert (store.images(), store.names()) == ([], [])


def test_what_another_machine_makes_is_left_alone_for_two_days(store: ImageStore, layout: OciLayout) -> None:
    imported(store, layout)
    made = store.temporary_folder / "elsewhere-0-0-77-1234-abcdefgh"
    made.mkdir()
    (made / "made.squashfs").touch()
    assert removable(store) == []
    then = time.time() - 3 * DAY_S
    os.utime(made, (then, then))
    assert removable(store) == []
    os.utime(made / "made.squashfs", (then, then))
    assert [each.path for each in removable(store)] == [made]


def test_what_other_tools_keep_in_the_same_folder_is_left_alone(store: ImageStore, layout: OciLayout) -> None:
    imported(store, layout)
    for place in (store.images_folder, store.temporary_folder, store.locks_folder):
        other = place / "overlay-images"
        other.mkdir()
        (other / "layer").touch()
        os.utime(other / "layer", (0, 0))
        os.utime(other, (0, 0))
    (store.folder / "other.sqsh").touch()
    assert removable(store, older_than_s=0) == []
    assert len(store.images()) == 1


def test_an_image_whose_record_is_torn_is_cleared_away_in_time(store: ImageStore, layout: OciLayout) -> None:
    image = imported(store, layout)
    folder = image.path.parent
    (folder / "image.json").write_text("{")
    assert removable(store) == []
    for path in (folder / "image.json", image.path, folder):
        os.utime(path, (0, 0))
    collect(store, removable(store))
    assert not folder.exists()


def test_what_this_process_makes_is_left_alone(store: ImageStore) -> None:
    with store.temporary():
        assert removable(store) == []


def test_an_image_in_use_is_removed_only_by_force(store: ImageStore, layout: OciLayout) -> None:
    image = imported(store, layout)
    store.pin("x:1", image.digest)
    with pytest.raises(ImageError, match=r"was used .* ago, so a job may run in it"):
        remove(store, "x:1")
    remove(store, "x:1", force=True)
    assert (store.images(), store.names()) == ([], [])


def test_a_name_goes_alone_when_the_image_has_another(store: ImageStore, layout: OciLayout) -> None:
    image = imported(store, layout)
    store.pin("x:1", image.digest)
    store.pin("x:2", image.digest)
    remove(store, "x:1")
    assert [name.name for name in store.names()] == ["x:2"]
    assert store.find(image.digest)


def test_an_image_is_removed_by_the_beginning_of_its_digest(store: ImageStore, layout: OciLayout) -> None:
    image = imported(store, layout)
    unused_for(image, days=8)
    with pytest.raises(ImageError, match="no such image in the store"):
        remove(store, "sha2")
    remove(store, image.digest[7:19])
    assert store.images() == []
