"""Backups: written whole, refused where they are not, brought back elsewhere; services that are moved."""

from __future__ import annotations

import io
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.systems.services.conftest import BLUEPRINT
from tests.systems.services.test_deployment import asked, until

from support.runs.real_run import LocalRun

pytestmark = pytest.mark.usefixtures("real")


def test_a_backup_brings_data_and_secrets_back_elsewhere(services, monkeypatch):
    services.call("deploy", str(services.blueprint), "--set", f"greeting={services.root()}/volumes/data")
    data = services.root() / "volumes" / "data"
    (data / "deep").mkdir()
    (data / "deep" / "value").write_text("42")
    (data / "link").symlink_to("deep/value")
    token = (services.root() / "secrets" / "token").read_text()
    file = services.folder / "echo.tar"
    code, written, said = services.call("backup", "echo", "-o", str(file), "--json")
    assert code == 0, said
    assert written["stopped"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert token.encode() not in file.read_bytes()
    assert until(services, "ready")
    services.call("stop", "echo")

    monkeypatch.setenv("CORDEE_SERVICES", str(services.folder / "elsewhere"))
    code, now, said = services.call("restore", str(file), "--name", "other", "--json")
    assert code == 0, said
    there = services.folder / "elsewhere" / "other"
    assert (there / "volumes" / "data" / "link").read_text() == "42"
    assert asked(now["services"][0]["endpoints"][0]["url"] + "/data", token) == (200, f"/data {there}/volumes/data")
    assert stat.S_IMODE((there / "secrets" / "token").stat().st_mode) == 0o600
    code, _, said = services.call("restore", str(file), "--name", "other")
    assert (code, "there is a service other already" in said) == (2, True)


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_secrets_of_a_backup_need_its_passphrase(services, monkeypatch):
    services.call("deploy", str(services.blueprint))
    mine, file = private(services.folder / "mine", "correct horse battery\n"), services.folder / "echo.tar"
    assert services.call("backup", "echo", "-o", str(file), "--passphrase-file", str(mine))[0] == 0
    other = private(services.folder / "other", "wrong horse battery\n")
    token = (services.root() / "secrets" / "token").read_text()
    services.call("stop", "echo")
    monkeypatch.setenv("CORDEE_SERVICES", str(services.folder / "elsewhere"))
    restore = ("restore", str(file), "--no-start")
    assert "backup-passphrase" in services.call(*restore)[2]
    code, _, said = services.call(*restore, "--passphrase-file", str(other))
    assert (code, "cannot be decrypted: another passphrase" in said) == (5, True)
    assert not list((services.folder / "elsewhere").iterdir())
    assert services.call(*restore, "--passphrase-file", str(mine))[0] == 0
    assert (services.folder / "elsewhere" / "echo" / "secrets" / "token").read_text() == token


@pytest.mark.parametrize(
    ("text", "mode", "refused"),
    [
        ("short", 0o600, (2, "the passphrase is too short")),
        ("correct horse battery", 0o644, (5, "others may read the file")),
    ],
)
def test_a_passphrase_that_is_none_is_refused_before_the_service_is_stopped(services, text, mode, refused):
    services.call("deploy", str(services.blueprint))
    path = private(services.folder / "passphrase", text)
    path.chmod(mode)
    code, _, told = services.call(
        "backup", "echo", "-o", str(services.folder / "a.tar"), "--passphrase-file", str(path)
    )
    assert (code, refused[1] in told) == (refused[0], True), told
    assert (services.root() / "volumes" / "data" / "starts").read_text() == "x"


def test_a_backup_without_secrets_is_restored_only_with_the_right_ones_or_new_ones(services):
    services.call("deploy", str(services.blueprint))
    file, root = services.folder / "echo.tar", services.root()
    token = (root / "secrets" / "token").read_text()
    assert services.call("backup", "echo", "-o", str(file), "--no-secrets")[0] == 0
    services.call("stop", "echo")
    code, _, said = services.call("restore", str(file), "--name", "other", "--no-start")
    assert (code, "written without the service's secrets" in said) == (2, True)
    assert services.call("restore", str(file), "--name", "new", "--secrets", "new", "--no-start")[0] == 0
    assert (services.root("new") / "secrets" / "token").read_text() != token
    assert (
        services.call("restore", str(file), "--name", "same", "--secrets", str(root / "secrets"), "--no-start")[0] == 0
    )
    assert (services.root("same") / "secrets" / "token").read_text() == token
    assert services.call("restore", str(file), "--again", "--no-start")[0] == 0
    assert (root / "secrets" / "token").read_text() == token


def broken(file: Path, change) -> Path:
    other = file.with_name("broken.tar")
    with tarfile.open(file) as old, tarfile.open(other, "w") as new:
        for member in old:
            data = old.extractfile(member).read() if member.isfile() else b""
            for name, bytes_ in change(member, data):
                member.name, member.size = name, len(bytes_)
                new.addfile(member, io.BytesIO(bytes_))
    return other


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda one, data: [(one.name, data.replace(b"x", b"y") if one.name.endswith("starts") else data)],
            "damaged: ",
        ),
        (lambda one, data: [("../evil" if one.name.endswith("starts") else one.name, data)], "no backup of a service"),
        (
            lambda one, data: [(one.name.replace("data/starts", "../../evil"), data)],
            "cannot be read",
        ),
        (lambda one, data: [] if one.name.endswith("starts") else [(one.name, data)], "cannot be read"),
        (lambda one, data: [(one.name, b'{"schema": 9}' if one.name == "backup.json" else data)], "of another version"),
    ],
)
def test_a_backup_that_is_not_whole_or_not_one_is_refused_and_leaves_nothing(services, change, said):
    services.call("deploy", str(services.blueprint))
    services.call("stop", "echo")
    file = services.folder / "echo.tar"
    assert services.call("backup", "echo", "-o", str(file))[0] == 0
    code, _, told = services.call("restore", str(broken(file, change)), "--name", "other", "--no-start")
    assert code != 0
    assert said.rstrip(": ") in told
    assert sorted(path.name for path in services.root().parent.iterdir()) == ["echo"]
    assert not list(services.folder.rglob("evil"))


def test_a_file_that_is_no_archive_is_no_backup(services):
    (services.folder / "echo.tar").write_bytes(b"no archive")
    code, _, told = services.call("restore", str(services.folder / "echo.tar"))
    assert code != 0
    assert "it is damaged, or no backup of a service" in told


def test_a_backup_on_a_full_disk_says_so_and_the_service_runs_on(services):
    services.call("deploy", str(services.blueprint))
    (services.root() / "volumes" / "data" / "large").write_bytes(b"x" * 3_000_000)
    place = services.folder / "small"
    place.mkdir()
    call = f"mount -t tmpfs -o size=1m none {place} && {sys.executable} -m cordee.faces.cli service backup echo -o {place}/echo.tar; ls -A {place}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", call], capture_output=True, text=True, check=False)
    assert "the backup cannot be written: No space left on device" in done.stderr
    assert done.stdout == ""
    assert until(services, "ready")


def test_a_service_whose_record_is_torn_says_how_its_backup_takes_its_place(services):
    services.call("deploy", str(services.blueprint))
    path = services.folder / "echo.tar"
    assert services.call("backup", "echo", "-o", str(path))[0] == 0
    services.call("stop", "echo")
    record = services.root() / "service.json"
    record.write_text(record.read_text()[:100])
    code, _, said = services.call("restore", str(path), "--again")
    assert code != 0
    assert f"move {services.root()} to another place, then `cordee service restore BACKUP`" in said
    services.root().rename(services.folder / "moved")
    assert services.call("restore", str(path))[0] == 0


def test_a_restored_service_takes_the_place_of_a_stopped_one_only_when_asked(services):
    services.call("deploy", str(services.blueprint))
    file = services.folder / "echo.tar"
    services.call("backup", "echo", "-o", str(file))
    assert "there is a service echo already" in services.call("restore", str(file), "--again")[2]
    services.call("stop", "echo")
    (services.root() / "volumes" / "data" / "starts").write_text("later")
    assert services.call("restore", str(file), "--again")[0] == 0
    assert "later" not in (services.root() / "volumes" / "data" / "starts").read_text()
    assert until(services, "ready")


def test_commands_of_a_blueprint_make_data_whole_before_the_copy_and_after_a_restore(services):
    more = """
[backup]
before = ["sh", "-c", "echo whole on $0 > $1/dump", "{port.http}", "{volume.data}"]
after = ["sh", "-c", "cp $0/dump $0/loaded", "{volume.data}"]
"""
    now = services.call("deploy", str(services.write(BLUEPRINT + more)), "--json")[1]
    port = now["endpoints"][0]["url"].rpartition(":")[2]
    file = services.folder / "echo.tar"
    code, written, said = services.call("backup", "echo", "-o", str(file), "--json")
    assert (code, written["stopped"]) == (0, False), said
    services.call("stop", "echo")
    assert services.call("restore", str(file), "--name", "other")[0] == 0
    data = services.root("other") / "volumes" / "data"
    assert (data / "loaded").read_text() == f"whole on {port}\n"
    services.call("stop", "other")
    (data / "loaded").unlink()
    services.call("upgrade", "other", "--to", str(services.blueprint))
    assert not (data / "loaded").exists()


def test_what_a_job_kept_of_its_service_becomes_a_service(services):
    job = services.folder / "job"
    job.mkdir()
    (job / "cordee.toml").write_text(
        f'name = "t"\nrun = "true"\n[services.tracking]\nservice = "{services.blueprint}"\nset = {{ greeting = "ciao" }}\n'
    )
    with LocalRun(job, services.folder / "runs", vet__max_load=1000.0) as run:
        assert run.wait_end().state == "finished", run.output()
    kept = run.folder.root / "services" / "tracking"
    code, now, said = services.call("restore", str(kept), "--json")
    assert code == 0, said
    token = (kept / "secrets" / "token").read_text()
    assert now["services"][0]["name"] == "tracking"
    assert asked(now["services"][0]["endpoints"][0]["url"] + "/data", token) == (200, "/data ciao")
    assert (services.root("tracking") / "volumes" / "data" / "starts").read_text() == "xx"


def test_a_service_whose_answers_differ_elsewhere_comes_back_with_its_data_of_before(services):
    # It answers by how often it was started, which a move changes.
    program = services.program.read_text().replace(
        'os.environ.get("GREETING", "")', 'open(os.path.join(data, "starts")).read()'
    )
    services.program.write_text(program)
    services.call("deploy", str(services.blueprint))
    code, _, said = services.call("move", "echo", "--target", "process")
    assert code == 1
    assert "runs where it was, with its data of before: it answers differently there: /data: 200 with 7 bytes" in said
    assert until(services, "ready")
    assert (services.root() / "volumes" / "data" / "starts").read_text() == "xx"


@pytest.mark.gate
def test_a_move_to_a_target_that_cannot_honour_it_changes_nothing(services):
    services.call("deploy", str(services.blueprint))
    code, _, said = services.call("move", "echo", "--target", "podman")
    assert code == 2
    assert "podman cannot honour it" in said
    assert (services.root() / "volumes" / "data" / "starts").read_text() == "x"
