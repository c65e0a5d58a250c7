"""Images from a registry: a real one on the loopback interface, asked through the real skopeo."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordee.machine.images.oci import this_architecture
from cordee.systems.environments.images import ImageError, ImageStore, locate
from cordee.systems.environments.images.reference import RegistryReference, read_reference
from cordee.systems.environments.images.registry.client import TRIES
from cordee.systems.environments.images.registry.credentials import write_auth_file
from cordee.systems.environments.images.registry.pull import Pulled, pull_image
from cordee.systems.environments.images.store.garbage import collect, removable
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.workshop import WORKSHOP
from cordee.testing.oci import LayerEntry, OciLayout
from support.servers.registry import LoopbackRegistry

from .conftest import wait_for_no_process

Pull = Callable[..., Pulled]


@pytest.fixture(autouse=True)
def _no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "ENROOT_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def registry(layout: OciLayout) -> Iterator[LoopbackRegistry]:
    layout.add([[LayerEntry("a", os.urandom(200_000))], [LayerEntry("b", b"2")]], tag="1", config={"Env": ["A=1"]})
    with LoopbackRegistry(layout.folder) as registry:
        yield registry


@pytest.fixture
def pull(registry: LoopbackRegistry, store: ImageStore) -> Pull:
    def call(text: str, **more: object) -> Pulled:
        reference = read_reference(text.replace("HOST", registry.host))
        assert isinstance(reference, RegistryReference)
        return pull_image(reference, store, pause=lambda seconds: None, **more)  # type: ignore[arg-type]

    return call


def test_an_image_is_fetched_and_its_name_pinned(pull: Pull, store: ImageStore, registry: LoopbackRegistry) -> None:
    pulled = pull("HOST#team/x:1")
    assert (pulled.fetched, pulled.before, pulled.changed) == (True, None, False)
    assert pulled.image.config.env == {"A": "1"}
    pinned = store.pinned(f"{registry.host}/team/x:1")
    assert pinned is not None
    # The digest is the registry's own, as `docker images --digests` shows it.
    assert pinned.digest == json.loads((registry.layout / "index.json").read_text())["manifests"][0]["digest"]
    assert store.listing(store.temporary_folder) == []


def test_what_is_in_the_store_is_not_fetched_again(pull: Pull, registry: LoopbackRegistry) -> None:
    pull("HOST/x:1")
    registry.asked.clear()
    again = pull("docker://HOST/other/name:1")
    assert not again.fetched
    assert not any("/blobs/" in path for path in registry.asked)


def test_a_tag_keeps_its_image_until_it_is_pulled_again(
    pull: Pull, layout: OciLayout, store: ImageStore, registry: LoopbackRegistry
) -> None:
    first = pull("HOST/x:1").image.digest
    environment = Environment("e", image=f"{registry.host}/x:1")
    index = layout.folder / "index.json"
    index.unlink()
    moved = OciLayout(layout.folder).add([[LayerEntry("new", b"3")]], tag="1")
    assert locate(environment, store, pull=True).config.digest == first
    pulled = pull("HOST/x:1")
    assert (pulled.before, pulled.image.digest, pulled.changed) == (first, moved, True)
    assert locate(environment, store).config.digest == moved


def test_an_image_is_found_by_its_digest(pull: Pull, store: ImageStore, registry: LoopbackRegistry) -> None:
    digest = pull("HOST/x:1").image.digest
    image = f"{registry.host}/x@{digest}"
    assert locate(Environment("e", image=image), store).config.digest == digest
    assert pull(f"HOST/x@{digest}").image.digest == digest


def test_locate_fetches_what_is_not_there_only_when_told(store: ImageStore, registry: LoopbackRegistry) -> None:
    environment = Environment("e", image=f"{registry.host}/x:1")
    with pytest.raises(ImageError, match=rf"cordee env pull {registry.host}/x:1"):
        locate(environment, store)
    assert locate(environment, store, pull=True).config.env == {"A": "1"}
    assert locate(environment, store).config.env == {"A": "1"}


def test_the_image_for_this_machine_is_taken_from_an_index(pull: Pull, layout: OciLayout) -> None:
    layout.add([[LayerEntry("other")]], architecture="s390x", platform=True, tag="s390x")
    own = layout.add([[LayerEntry("own")]], architecture=this_architecture(), platform=True)
    assert pull("HOST/x:index").image.digest == own


def test_an_image_that_docker_pushed_keeps_its_digest(pull: Pull, layout: OciLayout) -> None:
    digest = layout.add([[LayerEntry("a", b"docker's")]], tag="docker", docker=True, config={"Cmd": ["sh"]})
    image = pull("HOST/x:docker").image
    assert (image.digest, image.config.command) == (digest, ("sh",))


def test_an_index_without_this_machine_names_those_it_has(pull: Pull, layout: OciLayout) -> None:
    layout.folder.joinpath("index.json").unlink()
    other = OciLayout(layout.folder)
    other.add([[LayerEntry("a")]], architecture="s390x", platform=True)
    other.add([[LayerEntry("b")]], architecture="riscv64", platform=True)
    with pytest.raises(ImageError, match=r"(?s)not for this machine.*linux/riscv64, linux/s390x"):
        pull("HOST/x:index")


def test_passing_failures_are_tried_again(pull: Pull, registry: LoopbackRegistry) -> None:
    registry.failures, registry.cut = 1, 1
    said: list[str] = []
    assert pull("HOST/x:1", say=said.append).fetched
    assert any("trying again in 1 s" in text for text in said)


def test_a_registry_that_keeps_failing_is_given_up(pull: Pull, registry: LoopbackRegistry, store: ImageStore) -> None:
    registry.failures = 100
    said: list[str] = []
    with pytest.raises(ImageError, match=r"did not give the image: .*503"):
        pull("HOST/x:1", say=said.append)
    assert sum("trying again" in text for text in said) == TRIES - 1
    assert store.listing(store.temporary_folder) == []
    assert store.images() == []


def test_a_registry_that_falls_silent_is_tried_again_and_given_up(
    pull: Pull, registry: LoopbackRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cordee.systems.environments.images.registry.client.TOLD_EVERY_S", 0.05)
    monkeypatch.setattr("cordee.systems.environments.images.registry.client.STALLED_S", 0.3)
    registry.answering.clear()
    said: list[str] = []
    with pytest.raises(ImageError, match="did not give the image: timeout: nothing has arrived"):
        pull("HOST/x:1", say=said.append)
    assert sum("trying again" in text for text in said) == TRIES - 1


def test_an_image_of_podmans_own_storage_is_told_from_one_of_a_registry(pull: Pull) -> None:
    with pytest.raises(ImageError, match=r"(?s)podman's own storage.*podman save --format oci-archive"):
        pull("localhost/mine")


def test_an_image_that_is_not_there_is_not_asked_for_twice(pull: Pull) -> None:
    said: list[str] = []
    with pytest.raises(ImageError, match="has no such image"):
        pull("HOST/x:2", say=said.append)
    assert said == []


def test_a_registry_that_does_not_exist_is_told_from_an_image_that_does_not(pull: Pull) -> None:
    with pytest.raises(
        ImageError, match=r"(?s)there is no registry nowhere\.invalid, or no network.*a path begins with"
    ):
        pull("nowhere.invalid/x")


def test_a_pull_that_is_killed_fetches_no_more_and_leaves_a_sound_store(
    pull: Pull, registry: LoopbackRegistry, store: ImageStore
) -> None:
    registry.answering.clear()
    child = os.fork()
    if child == 0:
        pull("HOST/x:1")
        os._exit(1)
    while not any("/blobs/" in path for path in registry.asked):
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_for_no_process(str(store.folder))
    registry.answering.set()
    assert store.images() == []
    assert pull("HOST/x:1").fetched
    collect(store, removable(store))
    assert [*store.listing(store.temporary_folder), *store.listing(store.locks_folder)] == []


def test_two_pulls_at_once_fetch_once(
    pull: Pull, registry: LoopbackRegistry, store: ImageStore, tmp_path: Path
) -> None:
    registry.answering.clear()
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                pull("HOST/x:1", say=lambda text, number=number: (tmp_path / f"{number}-{text[:7]}").touch())
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    while not list(tmp_path.glob("*-another")) or not list(tmp_path.glob("*-fetchin")):
        time.sleep(0.001)
    registry.answering.set()
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert len(list(tmp_path.glob("*-fetchin"))) == 1
    assert len(store.images()) == 1


# Logins.


def test_a_refusal_speaks_of_users_and_logins_and_of_no_secret(pull: Pull, registry: LoopbackRegistry) -> None:
    registry.logins = {"ada": "secret"}
    with pytest.raises(
        ImageError, match=r"(?s)refuses to give the image to the user bob.*#x, with USER logged in"
    ) as caught:
        pull("bob@HOST#x:1")
    assert "skopeo login" in str(caught.value.next)
    assert "--username bob" in str(caught.value.next)


def credentials_of_enroot(tmp_path: Path, text: str) -> None:
    (tmp_path / "config/enroot").mkdir(parents=True)
    (tmp_path / "config/enroot/.credentials").write_text(text)


def test_logins_of_enroot_are_used(pull: Pull, registry: LoopbackRegistry, tmp_path: Path, monkeypatch) -> None:
    registry.logins = {"ada": "secret", "bob": "other"}
    monkeypatch.setenv("TOKEN", "other")
    lines = ["# mine", "machine elsewhere login x password y", f"machine {registry.host} login ada password secret"]
    credentials_of_enroot(tmp_path, "\n".join([*lines, f"machine {registry.host} login bob password $TOKEN"]))
    assert pull("HOST/x:1").fetched
    assert not pull("bob@HOST#x:1").fetched


def test_a_registry_that_does_not_take_an_image_is_said_to_be_so(registry: LoopbackRegistry, tmp_path: Path) -> None:
    registry.logins = {"ada": "secret"}

    def refused(reference: str) -> ImageError:
        with pytest.raises(ImageError) as error:
            WORKSHOP.push(registry.layout, reference, False, tmp_path, lambda text: None)
        return error.value

    denied = refused(f"{registry.host}/team/x:1")
    assert f"{registry.host} refuses to take the image" in denied.text
    assert denied.next == f"skopeo login {registry.host}"
    assert "--oci DIR" in str(refused("localhost/team/x:1").next)


def test_a_wrong_password_is_not_shown(pull: Pull, registry: LoopbackRegistry, tmp_path: Path) -> None:
    registry.logins = {"ada": "secret"}
    credentials_of_enroot(tmp_path, f"machine {registry.host} login ada password hunter2")
    with pytest.raises(ImageError, match="refuses to give the image") as caught:
        pull("ada@HOST#x:1")
    assert "hunter2" not in str(caught.value)
    assert "YWRhOmh1bnRlcjI" not in str(caught.value)


def test_logins_of_skopeo_are_used(pull: Pull, registry: LoopbackRegistry, tmp_path: Path, monkeypatch) -> None:
    registry.logins = {"ada": "secret"}
    (tmp_path / "auth.json").write_text(json.dumps({"auths": {registry.host: {"auth": "YWRhOnNlY3JldA=="}}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(tmp_path / "auth.json"))
    assert pull("HOST/x:1").fetched


def test_what_is_written_of_a_login_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    credentials_of_enroot(tmp_path, "machine auth.docker.io login ada password secret")
    reference = read_reference("x")
    assert isinstance(reference, RegistryReference)
    path = write_auth_file(reference, tmp_path, os.environ)
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(json.loads(path.read_text())["auths"]) == ["https://index.docker.io/v1/"]


def test_a_login_that_names_a_variable_which_is_not_set_is_refused(tmp_path: Path) -> None:
    credentials_of_enroot(tmp_path, "machine nvcr.io login $oauthtoken password $NGC_KEY")
    reference = read_reference("$oauthtoken@nvcr.io#nvidia/x")
    assert isinstance(reference, RegistryReference)
    with pytest.raises(ImageError, match="name a variable that is not set"):
        write_auth_file(reference, tmp_path, {"HOME": str(tmp_path)} | {"XDG_CONFIG_HOME": str(tmp_path / "config")})


# The program.


@pytest.mark.usefixtures("real")
def test_without_skopeo_podman_fetches_and_the_digest_is_the_same(
    pull: Pull, registry: LoopbackRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("mksquashfs", "tar", "newuidmap", "newgidmap"):
        (folder / name).symlink_to(shutil.which(name) or name)
    podman = folder / "podman"
    with tempfile.TemporaryDirectory(prefix="c-") as short:  # podman takes no longer one
        storage = f"--root {tmp_path}/storage --runroot {short} --storage-driver vfs"
        podman.write_text(f'#!/bin/sh\nexec {shutil.which("podman")} {storage} "$@"\n')
        podman.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        pulled = pull("HOST/x:1")
        with pytest.raises(ImageError, match="has no such image"):
            pull("HOST/x:2")
    assert pulled.image.digest == json.loads((registry.layout / "index.json").read_text())["manifests"][0]["digest"]
    assert pulled.image.config.env == {"A": "1"}


def test_no_skopeo_is_said_with_another_way(pull: Pull, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"(?s)skopeo or podman, and neither is installed.*podman save"):
        pull("HOST/x:1", environ={"PATH": str(tmp_path)})


def test_a_machine_without_a_policy_for_signatures_can_pull(
    pull: Pull, tmp_path: Path, registry: LoopbackRegistry, monkeypatch
) -> None:
    tool = tmp_path / "bin" / "skopeo"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nPATH={os.environ["PATH"]} exec skopeo "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setattr("cordee.systems.environments.images.registry.client.SITE_POLICY", tmp_path / "none.json")
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    assert pull("HOST/x:1").fetched
    lines = (tmp_path / "asked").read_text().splitlines()
    assert all(line.startswith("--insecure-policy ") for line in lines)
