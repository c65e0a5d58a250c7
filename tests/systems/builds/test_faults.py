"""What can go wrong with a build, and what is said of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from cordee.testing.containers import without_user_namespaces
from cordee.testing.images import busybox_root

from .conftest import RECIPE, Kitchen


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("copy =", "coppy =", "has no key coppy"),
        ("from =", "# from =", "does not say what the image begins with"),
        ('image = "made"', "", "an image that the environment does not name"),
        ('"one.txt:/etc/"', '"one.txt"', "has no target"),
        ('"one.txt:/etc/"', '"two.txt:/etc/"', "names what is not there"),
        ('"one.txt:/etc/"', '"one.txt:/tmp/"', "copy goes where an image keeps nothing"),
        ("copy =", 'pip = ["https://example.org/x.whl"]\ncopy =', "is not a requirement with a version"),
        ("copy =", 'conda = ["numpy 2"]\ncopy =', "is not a package"),
        ("copy =", 'conda = { prefix = "opt" }\ncopy =', "is no folder of the image"),
        ("copy =", 'containerfile = "x"\ncopy =', "has a containerfile and other parts"),
        ("copy =", 'apt = ["vim; rm"]\ncopy =', "is not a package"),
        ("copy =", 'apt = ["vim", "nano-"]\ncopy =', "'nano-' is not a package"),
        ("copy =", 'apt = ["lib*"]\ncopy =', "'lib*' is not a package"),
        ("commands =", 'workdir = ["x"]\ncommands =', "build.workdir"),
    ],
)
def test_a_wrong_recipe_is_told_with_its_line(kitchen: Kitchen, before: str, after: str, said: str):
    kitchen.change(before, after)
    error = kitchen.build(code=2)["error"]
    assert said in error["text"]
    assert error["file"] == str(kitchen.folder / "env.toml")
    assert error["line"] >= 1


def test_an_environment_without_a_recipe_says_what_a_recipe_is(kitchen: Kitchen):
    kitchen.write('image = "./x.sqsh"\n')
    assert "no recipe" in kitchen.build(code=2)["error"]["text"]


def test_an_image_that_is_not_built_yet_says_how_it_is_built(kitchen: Kitchen):
    done = kitchen.call("run", "env.toml", "--", "true")
    assert done.returncode == 125
    assert f"cordee env build {kitchen.folder}/env.toml" in done.stderr


@pytest.mark.usefixtures("real")
def test_a_command_that_fails_says_what_it_said_and_what_came_before_is_kept(kitchen: Kitchen):
    kitchen.change("rm /etc/group", "echo broken >&2; exit 3")
    error = kitchen.build(code=1)["error"]
    assert "it failed with 3" in error["text"]
    assert "broken" in error["given"]
    kitchen.change("echo broken >&2", r"printf '\\033[31mred' >&2")
    assert "\033" not in kitchen.call("build", "env.toml").stderr
    kitchen.change(r"printf '\\033[31mred' >&2; exit 3", "true")
    assert [layer["fresh"] for layer in kitchen.build()["layers"]] == [False, False, False, True]


@pytest.mark.usefixtures("real")
def test_killed_at_any_step_a_build_goes_on_and_makes_the_same_image(kitchen: Kitchen, place: Path):
    kitchen.change("rm /etc/group", "sleep 0.2; rm /etc/group")
    undisturbed = Kitchen(place / "undisturbed", "x", kitchen.python)
    shutil.copyfile(kitchen.folder / "env.toml", undisturbed.folder / "env.toml")
    whole = undisturbed.build()
    shutil.copyfile(undisturbed.folder / "env.lock.json", kitchen.folder / "env.lock.json")
    for line in (1, 3, 5, 7):
        process = kitchen.start("build", "env.toml")
        assert process.stderr is not None
        for _ in range(line):
            if not process.stderr.readline():
                break
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    made = kitchen.build("--locked")
    assert made["digest"] == whole["digest"]
    kitchen.build("--locked")
    for name in ("image", "layer.json", "diff"):
        assert not list((kitchen.cache / "work").rglob(f"*/{name}"))


@pytest.mark.parametrize("closed", ["files/c", "files/inner"])
def test_what_is_copied_and_cannot_be_read_is_named_and_never_left_out(user_kitchen: Kitchen, closed: str):
    path = user_kitchen.folder / closed
    if not path.exists():
        path.mkdir()
    os.chown(path, 0, 0)
    path.chmod(0o600)
    error = user_kitchen.build(code=1)["error"]
    assert "what is copied cannot be read: Permission denied" in error["text"]
    assert error["given"] == str(path)


@pytest.mark.usefixtures("real")
def test_a_full_disk_is_said_and_room_made_goes_on(kitchen: Kitchen):
    (kitchen.folder / "small").mkdir()
    kitchen.change("echo two > /etc/two", "dd if=/dev/zero of=/etc/two bs=1M count=20")
    script = f'mount -t tmpfs -o size=16m small {kitchen.folder}/small; exec "$@"'
    front = ["unshare", "-m", "sh", "-c", script, "sh"]
    error = kitchen.build(code=1, front=front, env={"CORDEE_BUILD_CACHE": f"{kitchen.folder}/small"})["error"]
    assert "no space left" in error["text"]
    assert "CORDEE_BUILD_CACHE" in error["next"]
    kitchen.build()


@pytest.mark.usefixtures("real")
def test_a_file_system_without_attributes_or_overlays_is_named_and_not_the_recipe(kitchen: Kitchen):
    """A ramfs keeps no attributes; an overlay cannot be the upper layer of another one."""
    kitchen.change("rm /etc/group", "rm -r /etc && mkdir /etc")
    for name in ("c", "lower", "upper", "work"):
        (kitchen.folder / name).mkdir()
    for mount, said in (
        ("-t ramfs", "keeps no extended attributes"),
        ("-t overlay -o lowerdir=lower,upperdir=upper,workdir=work", "would not lay a layer over the image"),
    ):
        front = ["unshare", "-m", "sh", "-c", f'mount {mount} none c && exec "$@"', "sh"]
        error = kitchen.build(code=1, front=front, env={"CORDEE_BUILD_CACHE": f"{kitchen.folder}/c"})["error"]
        assert said in error["text"]
        assert "on a local disk" in error["next"] or "folder there" in error["next"]
        assert "CORDEE_BUILD_CACHE" in error["next"]


@pytest.mark.usefixtures("real")
def test_a_base_that_has_vanished_is_no_loss_once_it_was_locked(kitchen: Kitchen, busybox_base: Path):
    base = kitchen.folder / "base.sqsh"
    shutil.copyfile(busybox_base, base)
    kitchen.write(RECIPE.format(base="./base.sqsh"))
    first = kitchen.build()
    base.unlink()
    kitchen.change("echo two", "echo 2")
    assert kitchen.build()["digest"] != first["digest"]
    shutil.rmtree(kitchen.cache)
    error = kitchen.build(code=1)["error"]
    assert "the base image is not to be had" in error["text"]


@pytest.mark.usefixtures("real")
def test_a_base_that_is_another_one_than_was_locked_is_refused(kitchen: Kitchen, busybox_base: Path):
    other = Kitchen(kitchen.folder / "other", str(busybox_base), kitchen.python)
    other.change('image = "made"', f'image = "{kitchen.folder}/base.sqsh"')
    shutil.copyfile(busybox_base, kitchen.folder / "base.sqsh")
    kitchen.write(RECIPE.format(base="./base.sqsh"))
    kitchen.build()
    shutil.rmtree(kitchen.cache)
    other.build()
    error = kitchen.build(code=1)["error"]
    assert "another one than was locked" in error["text"]
    assert error["allowed"].startswith("sha256:")


@pytest.mark.usefixtures("real")
def test_a_base_with_files_that_the_user_may_not_read_names_them_and_is_taken_as_oci(
    user_kitchen: Kitchen, kitchen: Kitchen, place: Path
):
    root = busybox_root(place / "closed")
    (root / "secret").mkdir()
    (root / "secret/file").write_text("x")
    os.chown(root / "secret/file", 1234, 1234)
    os.chown(root / "secret", 1234, 1234)
    (root / "secret").chmod(0o700)
    subprocess.run(["mksquashfs", root, place / "closed.sqsh", "-quiet", "-no-progress"], check=True)
    user_kitchen.write(RECIPE.format(base=place / "closed.sqsh"))
    error = user_kitchen.build(code=1)["error"]
    assert "only their owner may read" in error["text"]
    assert error["given"] == f"/secret in {place}/closed.sqsh"
    kitchen.write(RECIPE.format(base=place / "closed.sqsh"))
    kitchen.build("--oci", str(place / "layout"))
    user_kitchen.write(RECIPE.format(base=f"oci:{place}/layout"))
    user_kitchen.change("rm /etc/group", "test -e /secret/file")
    user_kitchen.build()


def test_without_user_namespaces_it_says_which_switch_is_off(user_kitchen: Kitchen):
    front, user_kitchen.words = without_user_namespaces(), []
    error = user_kitchen.build(code=1, front=front)["error"]
    assert "user namespaces cannot be used here" in str(error["text"]) + str(error["given"])


@pytest.mark.usefixtures("real")
def test_a_lock_that_is_none_is_refused_and_one_that_is_old_does_with_network_only(kitchen: Kitchen):
    lock = kitchen.folder / "env.lock.json"
    lock.write_text("{")
    assert "the lock cannot be read" in kitchen.build(code=2)["error"]["text"]
    lock.unlink()
    assert "the base image is not locked" in kitchen.build("--locked", code=1)["error"]["text"]
    kitchen.build()
    kitchen.change('"rm /etc/group"', '"rm /etc/group", "true"')
    assert "other steps" in kitchen.build("--locked", code=1)["error"]["text"]
    kitchen.change("copy =", 'pip = ["six"]\ncopy =')
    error = kitchen.build("--offline", code=1)["error"]
    assert "may not be" in error["text"]
    assert json.loads(lock.read_text())["schema"] == "cordee.lock/1"


@pytest.mark.usefixtures("real")
def test_an_image_without_python_or_apt_says_so(kitchen: Kitchen):
    kitchen.change("copy =", 'pip = ["six"]\ncopy =')
    assert "the image has no Python for pip" in kitchen.build(code=1)["error"]["text"]
    kitchen.change('pip = ["six"]', 'apt = ["vim"]')
    assert "the base image has no apt-get" in kitchen.build(code=1)["error"]["text"]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "change",
    [
        {"hash": "sha256:../../../etc/passwd"},
        {"file": "../../x.whl"},
        {"file": "--help"},
        {"name": "six\n--index-url=http://example.org"},
        {"hash": None},
    ],
)
def test_a_lock_of_somebody_elses_cannot_name_paths_or_options(kitchen: Kitchen, change: dict[str, str]):
    digest = f"sha256:{64 * 'a'}"
    package = {"kind": "pypi", "name": "six", "version": "1", "hash": digest, "file": "six.whl", "bytes": 1, **change}
    lock = {"schema": "cordee.lock/1", "source_date_epoch": 1, "base": {"digest": digest}, "parts": {}}
    (kitchen.folder / "env.lock.json").write_text(json.dumps({**lock, "packages": [package]}))
    assert "the lock cannot be read" in kitchen.build(code=2)["error"]["text"]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("one.txt:/etc", "/etc is a folder of the image: end the target with / to copy into it"),
        ("one.txt:/./tmp/x", "leads to a folder of which no image keeps anything"),
        ("one.txt:/var/out/x", "leads to a folder of which no image keeps anything"),
        ("files:/var/out", "leads to a folder of which no image keeps anything"),
    ],
)
def test_a_copy_that_would_be_lost_or_come_under_another_name_is_refused(kitchen: Kitchen, entry: str, said: str):
    kitchen.change('"files:/opt/files", "one.txt:/etc/"', f'"out:/var/out", "{entry}"')
    (kitchen.folder / "out").symlink_to("/run")
    error = kitchen.build(code=1)["error"]
    assert said in error["given"]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('env = { A = "x\\u0000" }', "or a NUL in it"),
        ('workdir = "there"', "is no folder of the image"),
        ('pip = { packages = ["six"], python = "-m" }', "is no program"),
        ('conda = { packages = ["rope"], prefix = "/tmp/conda" }', "is no folder that an image keeps"),
        ('copy = [":/opt/all"]', "has no source"),
    ],
)
def test_what_could_not_be_in_an_image_is_told_with_its_line(
    kitchen: Kitchen, busybox_base: Path, lines: str, said: str
):
    kitchen.write(f'image = "made"\n[build]\nfrom = "{busybox_base}"\n{lines}\n')
    error = kitchen.build(code=2)["error"]
    assert said in error["text"]
    assert error["line"] == 4


@pytest.mark.parametrize("image", ["./base.sqsh", "base"])
def test_an_image_that_begins_with_itself_is_refused_before_it_is_written_over(
    kitchen: Kitchen, busybox_base: Path, image: str
):
    shutil.copyfile(busybox_base, kitchen.folder / "base.sqsh")
    kitchen.write(f'image = "{image}"\n[build]\nfrom = "{image}"\ncommands = ["true"]\n')
    assert "from is the image that is made" in kitchen.build(code=2)["error"]["text"]
    assert (kitchen.folder / "base.sqsh").read_bytes() == busybox_base.read_bytes()


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    "change",
    [
        {"layers": [1]},
        {"layers": [{"step": "x"}]},
        {"copies": [{}]},
        {"copies": "abc"},
        {"source_date_epoch": -1},
        {"source_date_epoch": 10**12},
        {"source_date_epoch": 1e300},
    ],
)
def test_a_lock_with_another_field_edited_by_hand_is_refused(kitchen: Kitchen, change: dict[str, object]):
    digest = f"sha256:{64 * 'a'}"
    lock = {"schema": "cordee.lock/1", "source_date_epoch": 1, "base": {"digest": digest}, "parts": {}, "packages": []}
    (kitchen.folder / "env.lock.json").write_text(json.dumps({**lock, **change}))
    assert "the lock cannot be read" in kitchen.build(code=2)["error"]["text"]


@pytest.mark.usefixtures("real")
def test_a_base_of_another_name_with_the_same_content_is_locked_under_that_name(kitchen: Kitchen, busybox_base: Path):
    shutil.copyfile(busybox_base, kitchen.folder / "a.sqsh")
    kitchen.write(RECIPE.format(base="./a.sqsh"))
    kitchen.build()
    (kitchen.folder / "a.sqsh").rename(kitchen.folder / "b.sqsh")
    kitchen.write(RECIPE.format(base="./b.sqsh"))
    first = kitchen.build()
    assert kitchen.build("--locked")["digest"] == first["digest"]


@pytest.mark.usefixtures("real")
def test_a_layer_of_the_cache_that_was_damaged_is_named_and_not_passed_on(kitchen: Kitchen):
    made = kitchen.build()
    layer = kitchen.cache / "archives" / made["layers"][0]["digest"].replace(":", "-")
    with layer.open("r+b") as file:
        file.seek(700)
        file.write(b"\xff")
    for words in (("--oci", "layout"), ()):
        error = kitchen.build(*words, code=1)["error"]
        assert error["text"] == "a file in the cache of builds is damaged"
        assert f"remove {kitchen.cache}" in error["next"]
        shutil.rmtree(kitchen.folder / "store")
    shutil.rmtree(kitchen.cache)
    assert kitchen.build()["digest"] == made["digest"]


def test_a_cache_that_others_can_write_to_is_refused(user_kitchen: Kitchen):
    for owner, mode in ((1001, 0o755), (1000, 0o777)):
        cache = user_kitchen.folder / f"cache-{owner}"
        (cache / "layers").mkdir(parents=True)
        (cache / "layers").chmod(mode)
        os.chown(cache / "layers", owner, owner)
        os.chown(cache, 1000, 1000)
        error = user_kitchen.build(code=1, env={"CORDEE_BUILD_CACHE": str(cache)})["error"]
        assert error["text"] == "other users can write to the cache of builds"
        assert error["given"] == str(cache / "layers")


@pytest.mark.usefixtures("real")
def test_a_folder_that_is_full_is_named_wherever_it_is(kitchen: Kitchen):
    """3 MiB do for the layers of the base, not for its squashfs file; 1 MiB for nothing of it."""
    for size in ("1m", "3m"):
        error = kitchen.build(code=1, front=_small(kitchen, "cache", size))["error"]
        assert error["text"] == "there is no space left for the build"
        assert error["given"] == str(kitchen.cache)
    kitchen.change('image = "made"', 'image = "./images/made.sqsh"')
    error = kitchen.build(code=1, front=_small(kitchen, "images", "1m"))["error"]
    assert error["text"] == "the image cannot be written: No space left on device"
    assert error["given"] == str(kitchen.folder / "images/made.sqsh")
    assert "CORDEE_BUILD_CACHE" not in error["next"]


def _small(kitchen: Kitchen, name: str, size: str) -> list[str]:
    (kitchen.folder / name).mkdir(exist_ok=True)
    script = f'mount -t tmpfs -o size={size},mode=700 small {kitchen.folder}/{name}; exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, "sh"]


@pytest.mark.usefixtures("real")
def test_what_is_kept_of_packages_is_given_up_where_there_is_no_room_and_never_left_half_made(kitchen: Kitchen):
    (kitchen.cache / "stems").mkdir(parents=True, mode=0o700)
    done = kitchen.call("build", "env.toml", front=_small(kitchen, "cache/cordee/build/stems", "200k"))
    assert done.returncode == 0, done.stderr
    assert "the lower layers are not kept, and packed with the others: there is no space left" in done.stderr
    left = kitchen.cache / "stems" / ".half"
    left.mkdir()
    os.utime(left, (0, 0))
    kitchen.build()
    assert not left.exists()


@pytest.mark.usefixtures("real")
def test_more_layers_than_the_kernel_joins_are_told_with_what_to_do(kitchen: Kitchen):
    base = (kitchen.folder / "env.toml").read_text().split('from = "')[1].split('"')[0]
    lines = ", ".join(140 * ['":"'])
    kitchen.write(f'image = "made"\n[build]\nfrom = "{base}"\ncommands = [{lines}]\n')
    error = kitchen.build(code=1)["error"]
    assert "the kernel does not join" in error["text"]
    assert "put several lines of commands into one" in error["next"]
