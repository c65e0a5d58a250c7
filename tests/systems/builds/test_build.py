"""An image from a recipe: what is in it, and that it is the same wherever and whenever it is made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from .conftest import Kitchen

pytestmark = pytest.mark.usefixtures("real")


def layers(layout: str) -> list[tarfile.TarFile]:
    blobs = Path(layout) / "blobs" / "sha256"
    manifest = json.loads((Path(layout) / "index.json").read_text())["manifests"][0]["digest"][7:]
    found = json.loads((blobs / manifest).read_text())["layers"]
    return [tarfile.open(blobs / layer["digest"][7:]) for layer in found]


@pytest.mark.gate
def test_a_recipe_becomes_an_image_that_runs_and_has_all_of_it(kitchen: Kitchen):
    made = kitchen.build()
    assert [layer["step"] for layer in made["layers"]] == [
        "copy files:/opt/files",
        "copy one.txt:/etc/",
        "command: echo two > /etc/two",
        "command: rm /etc/group",
    ]
    done = kitchen.call("run", "env.toml", "--", "sh", "-c", "cat /etc/two /etc/one.txt /opt/files/a; echo $GREETING")
    assert (done.returncode, done.stdout) == (0, "two\noneahello\n"), done.stderr
    assert kitchen.call("check", "env.toml").returncode == 0


def test_the_digest_is_the_same_for_another_user_in_another_folder_with_other_times_and_settings(
    kitchen: Kitchen, user_kitchen: Kitchen
):
    first = kitchen.build()
    shutil.copyfile(kitchen.folder / "env.lock.json", user_kitchen.folder / "env.lock.json")
    os.chown(user_kitchen.folder / "env.lock.json", 1000, 1000)
    shutil.rmtree(user_kitchen.folder / "files")
    (user_kitchen.folder / "files").mkdir(mode=0o700)
    for name in ("c", "a", "b"):
        (user_kitchen.folder / "files" / name).write_text(name)
        os.utime(user_kitchen.folder / "files" / name, (86_400, 86_400))
    (user_kitchen.folder / "files" / "c").chmod(0o755)
    for path in (user_kitchen.folder / "files", *(user_kitchen.folder / "files").iterdir()):
        os.chown(path, 1000, 1000)
    # All of benchmarks/environment_digest.py that takes no time.
    (user_kitchen.folder / "home" / "tmp").mkdir(parents=True)
    for path in (user_kitchen.folder / "home", user_kitchen.folder / "home" / "tmp"):
        os.chown(path, 1000, 1000)
    disturbed = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "SOURCE_DATE_EPOCH": "1", "PYTHONHASHSEED": "7"}
    disturbed["TMPDIR"] = str(user_kitchen.folder / "home" / "tmp")
    front = ["sh", "-c", 'umask 077; exec taskset -c 0 "$@"', "sh"]
    second = user_kitchen.build("--locked", "--offline", env=disturbed, front=front)
    assert second["digest"] == first["digest"]
    assert all(layer["fresh"] for layer in second["layers"])
    done = user_kitchen.call("run", "env.toml", "--", "cat", "/etc/two")
    assert (done.returncode, done.stdout) == (0, "two\n"), done.stderr


def test_only_what_changed_and_what_stands_on_it_is_made_again(kitchen: Kitchen):
    kitchen.build()
    kitchen.change("echo two", "echo 2")
    again = kitchen.build()
    assert [layer["fresh"] for layer in again["layers"]] == [False, False, True, True]


def test_owners_that_a_command_sets_are_in_the_layer_and_removed_files_are_gone(user_kitchen: Kitchen):
    user_kitchen.change("echo two > /etc/two", "echo 2 > /etc/two; chown 33:44 /etc/two; rm /etc/passwd")
    made = user_kitchen.build()
    third = layers(made["layout"])[3]
    member = third.getmember("etc/two")
    assert (member.uid, member.gid, member.mtime) == (
        33,
        44,
        json.loads(Path(made["lock"]).read_text())["source_date_epoch"],
    )
    assert "etc/.wh.passwd" in third.getnames()
    assert "etc/.wh.group" in layers(made["layout"])[4].getnames()
    done = user_kitchen.call("run", "env.toml", "--", "sh", "-c", "ls /etc")
    assert "two" in done.stdout


def test_a_command_that_does_not_repeat_itself_is_named_with_its_files(kitchen: Kitchen):
    kitchen.change("echo two > /etc/two", "cat /proc/sys/kernel/random/uuid > /etc/two")
    kitchen.build()
    found = kitchen.build("--check")["findings"]
    assert any("cat /proc/sys/kernel/random/uuid" in each["text"] and "/etc/two" in each["text"] for each in found)
    refused = kitchen.build("--check", "--locked", code=1)["error"]
    assert "made other files than when the recipe was locked" in refused["text"]


def test_commands_reach_no_network_unless_the_recipe_says_so(kitchen: Kitchen):
    kitchen.change("echo two > /etc/two", "grep -c : /proc/net/dev > /etc/two")
    kitchen.build()
    alone = kitchen.call("run", "env.toml", "--", "cat", "/etc/two").stdout
    assert int(alone) == 1  # the loopback device
    kitchen.change("env = {", "network = true\nenv = {")
    kitchen.build()
    shared = kitchen.call("run", "env.toml", "--", "cat", "/etc/two").stdout
    assert int(shared) == Path("/proc/net/dev").read_text().count(":")


def test_an_image_can_begin_with_nothing_and_has_no_program_then(kitchen: Kitchen, user_kitchen: Kitchen):
    digests = set()
    for each in (kitchen, user_kitchen):
        shutil.copyfile(shutil.which("busybox") or "", each.folder / "busybox")
        (each.folder / "busybox").chmod(0o755)
        each.write(
            'image = "made"\n[build]\nfrom = "scratch"\ncopy = ["busybox:/bin/sh", "files:/opt/files"]\n'
            'commands = ["echo two > /etc-two"]\n'
        )
        if digests:
            shutil.copyfile(kitchen.folder / "env.lock.json", each.folder / "env.lock.json")
        digests.add(each.build()["digest"])
        done = each.call("run", "env.toml", "--", "/bin/sh", "-c", "echo /*")
        assert {"/bin", "/etc-two", "/opt"} <= set(done.stdout.split())
    assert len(digests) == 1
    kitchen.write('image = "made"\n[build]\nfrom = "scratch"\ncommands = ["true"]\n')
    error = kitchen.build(code=1)["error"]
    assert "there is no command /bin/sh inside" in error["text"]


def test_an_image_that_is_a_file_is_written_whole_and_starts_from_there(kitchen: Kitchen):
    kitchen.change('image = "made"', 'image = "./made.sqsh"')
    more = 'workdir = "/opt/files"\nentrypoint = ["/bin/echo", "it\'s"]\ncommand = ["a b"]\n'
    kitchen.change("[build]\n", f"[build]\n{more}")
    made = kitchen.build("--oci", "layout")
    assert made["path"] == str(kitchen.folder / "made.sqsh")
    told = kitchen.call("run", "env.toml", "--", "sh", "-c", "echo $GREETING $PWD; ls")
    assert told.stdout.split() == ["hello", "/opt/files", "a", "b", "c"]
    explained = json.loads(kitchen.call("explain", "env.toml", "--json").stdout)
    assert ["/bin/echo", "it's"] in [each.get("value") for each in explained["values"]]
    kitchen.write((kitchen.folder / "env.toml").read_text() + '[startup]\ncommands = ["export A=1"]\n')
    assert "start-up commands" in kitchen.call("explain", "env.toml", "env").stderr
    kitchen.write((kitchen.folder / "env.toml").read_text().partition("[startup]")[0])
    assert kitchen.call("run", "env.toml", "--", "cat", "/etc/two").stdout == "two\n"
    kitchen.change('image = "./made.sqsh"', 'image = "oci:./layout"')
    assert kitchen.call("run", "env.toml", "--", "cat", "/etc/two").stdout == "two\n"


def test_the_folder_of_the_recipe_is_copied_without_what_the_build_writes_there(kitchen: Kitchen):
    kitchen.env |= {"XDG_CACHE_HOME": f"{kitchen.folder}-cache", "HOME": f"{kitchen.folder}-cache"}
    kitchen.env["EDF_IMAGESTORE"] = f"{kitchen.folder}-cache/store"
    kitchen.change('image = "made"', 'image = "./made.sqsh"')
    kitchen.change('"files:/opt/files"', '".:/opt/all"')
    first = kitchen.build()
    again = kitchen.build("--locked", "--offline")
    assert again["digest"] == first["digest"]
    assert not any(layer["fresh"] for layer in again["layers"])
    listed = kitchen.call("run", "env.toml", "--", "ls", "/opt/all")
    assert listed.stdout.split() == ["env.toml", "files", "one.txt"], listed.stderr
    assert kitchen.call("check", "env.toml").stderr == ""


def test_a_file_that_is_copied_is_kept_wherever_tools_have_their_caches_and_theirs_are_not(kitchen: Kitchen):
    kitchen.change('"one.txt:/etc/"', '"one.txt:/root/.cache/hub/", "one.txt:/var/log/kept.log"')
    kitchen.change("rm /etc/group", "mkdir -p /root/.cache/tool; echo 1 > /var/log/tool.log")
    kitchen.build()
    done = kitchen.call("run", "env.toml", "--", "sh", "-c", "ls /root/.cache /root/.cache/hub /var/log")
    assert done.stdout.split() == ["/root/.cache:", "hub", "/root/.cache/hub:", "one.txt", "/var/log:", "kept.log"], (
        done.stdout + done.stderr
    )


def test_an_image_of_an_archive_keeps_the_layers_of_its_base(kitchen: Kitchen):
    base = kitchen.build("--oci", "layout")
    kitchen.change(kitchen_base(kitchen), "oci:./layout")
    kitchen.change('image = "made"', 'image = "over"')
    kitchen.change("rm /etc/group", "rm -f /etc/group")
    over = kitchen.build()

    def digests(layout: str) -> list[str]:
        blobs = Path(layout) / "blobs" / "sha256"
        manifest = json.loads((Path(layout) / "index.json").read_text())["manifests"][0]["digest"][7:]
        return [layer["digest"] for layer in json.loads((blobs / manifest).read_text())["layers"]]

    assert digests(over["layout"])[:5] == digests(base["layout"])
    assert len(digests(over["layout"])) == 9


def kitchen_base(kitchen: Kitchen) -> str:
    text = (kitchen.folder / "env.toml").read_text()
    return next(line for line in text.splitlines() if line.startswith("from")).split('"')[1]


def test_two_builds_of_one_recipe_make_one_image(kitchen: Kitchen):
    kitchen.change("echo two > /etc/two", "sleep 1; echo two > /etc/two")
    both = [kitchen.start("build", "env.toml", "--json") for _ in range(2)]
    answers = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    found = [json.loads(out) for out, _ in answers]
    assert found[0]["digest"] == found[1]["digest"]
    slow = [next(layer for layer in each["layers"] if "sleep" in layer["step"])["fresh"] for each in found]
    assert sorted(slow) == [False, True]


def test_the_plain_edf_has_no_table_that_others_refuse(kitchen: Kitchen):
    done = kitchen.call("export", "env.toml", "--image", "registry.site#team/made:1")
    assert done.returncode == 0, done.stderr
    assert "build" not in done.stdout
    assert 'image = "registry.site#team/made:1"' in done.stdout


def test_a_layout_is_what_podman_takes(kitchen: Kitchen):
    made = kitchen.build("--oci", "layout")
    done = subprocess.run(
        ["skopeo", "inspect", "--insecure-policy", f"oci:{kitchen.folder}/layout"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["Digest"] == made["digest"]
    assert "GREETING=hello" in said["Env"]


def test_what_is_copied_takes_the_place_of_what_is_there_links_and_rights_included(kitchen: Kitchen):
    for name in ("one.txt", "files/c"):
        (kitchen.folder / name).chmod(0o755)
    for name, leads in (("link", "/etc/group"), ("folder", "/etc")):
        (kitchen.folder / name).symlink_to(leads)
    copies = ["link:/opt/files/a", "link:/opt/one", "folder:/opt/folder", "files/b:/opt/files/c"]
    copies += ["files:/opt/files", "one.txt:/opt/one"]
    kitchen.change('"files:/opt/files", "one.txt:/etc/"', ", ".join(f'"{each}"' for each in copies))
    kitchen.change(', "rm /etc/group"', "")
    kitchen.build()
    script = "stat -c '%A %N' /opt/files/a /opt/files/c /opt/one /opt/folder; head -n 1 /etc/group"
    done = kitchen.call("run", "env.toml", "--", "sh", "-c", script)
    assert done.stdout.splitlines() == [
        "-rw-r--r-- /opt/files/a",
        "-rwxr-xr-x /opt/files/c",
        "-rwxr-xr-x /opt/one",
        "lrwxrwxrwx '/opt/folder' -> '/etc'",
        "root:x:0:",
    ], done.stdout + done.stderr


def test_a_link_is_told_from_another_with_the_same_words(kitchen: Kitchen):
    (kitchen.folder / "files" / "x y").symlink_to("z")
    first = kitchen.build()
    (kitchen.folder / "files" / "x y").unlink()
    (kitchen.folder / "files" / "x").symlink_to("y z")
    assert kitchen.build()["digest"] != first["digest"]


def test_a_name_that_would_remove_a_file_of_the_base_is_left_out_and_told(kitchen: Kitchen):
    kitchen.change("rm /etc/group", "touch /etc/.wh.os-release")
    (found,) = kitchen.build()["findings"]
    assert "/etc/.wh.os-release: a name that says in an image that a file is removed" in found["text"]
    assert kitchen.call("run", "env.toml", "--", "test", "-e", "/etc/os-release").returncode == 0


def test_a_command_can_close_the_root_and_nest_folders_deeply(user_kitchen: Kitchen):
    deep = "i=0; while [ $i -lt 1200 ]; do mkdir d; cd d; i=$((i+1)); done"
    user_kitchen.change(
        '"rm /etc/group"', f'"chmod 0 / /etc", "{deep}", "touch /etc/x", "rm -r /d", "chmod 755 / /etc"'
    )
    made = user_kitchen.build()
    assert user_kitchen.build("--check")["digest"] == made["digest"]
    assert user_kitchen.call("run", "env.toml", "--", "test", "-e", "/etc/x").returncode == 0
    subprocess.run(["rm", "-rf", user_kitchen.cache], check=True)  # deeper than what removes the folder of the test
