"""A real image with variables of its own: they go before the host's, in `resolve`, `explain`, a job's plan and what is executed."""

from __future__ import annotations

import pytest

from cordee.core.errors import DocumentError
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.edf.image import config_in
from cordee.systems.environments.images import ImageStore
from cordee.systems.environments.prepare import resolve_here
from cordee.systems.environments.start import SiteWords, start
from cordee.testing.oci import LayerEntry, OciLayout

EDF = 'image = "oci:./layout"\nworkdir = "${BASE}"\nmounts = ["${HOME}"]\n[env]\nPATH = "${PATH}:/custom/bin"\n'


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """Return the host's variables, in a folder with an EDF and a layout whose image sets PATH, HOME and BASE."""
    config = {"Env": ["PATH=/opt/bin", "HOME=/root", "BASE=/opt"], "WorkingDir": "/opt"}
    OciLayout(tmp_path / "layout").add([[LayerEntry("opt/file", b"x")]], config=config)
    (tmp_path / "env.toml").write_text(EDF)
    monkeypatch.chdir(tmp_path)
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "EDF_IMAGESTORE": str(tmp_path / "store")}


def test_an_archive_is_asked_without_being_imported(environ, tmp_path):
    store = ImageStore(tmp_path / "store")
    config = config_in(store)(f"oci:{tmp_path}/layout")
    assert config is not None
    assert config.env["PATH"] == "/opt/bin"
    assert not store.folder.exists()


@pytest.mark.parametrize("image", ["nowhere.io/x:1", "/none.sqsh", "oci:/none", ""])
def test_an_image_that_is_not_here_says_nothing(image, tmp_path):
    config = config_in(ImageStore(tmp_path / "store"))(image)
    assert config == (None if image else ImageConfig())


def test_what_holds_inside_is_expanded_by_the_image_and_what_holds_outside_by_the_host(environ, tmp_path):
    found = resolve_here("env.toml", SiteWords(), environ=environ).environment
    assert found.env == {"PATH": "/opt/bin:/custom/bin"}
    assert found.workdir == "/opt"
    assert [mount.source for mount in found.mounts] == [str(tmp_path)]
    assert found.variables(environ)["HOME"] == "/root"


def test_a_command_gets_the_images_path_extended(environ):
    assert start("env.toml", ["true"], environ=environ).env["PATH"] == "/opt/bin:/custom/bin"


def test_root_is_known_when_the_archive_is_in_the_store(environ):
    assert resolve_here("env.toml", SiteWords(), environ=environ).environment.root is None
    start("env.toml", ["true"], environ=environ)
    root = resolve_here("env.toml", SiteWords(), environ=environ).environment.root
    assert root is not None
    assert root.kind == "squashfs"


def test_a_variable_that_the_image_may_define_is_asked_for_with_the_image(environ, tmp_path):
    (tmp_path / "env.toml").write_text('image = "nowhere.io/x:1"\nworkdir = "${WORKSPACE}"\n')
    with pytest.raises(DocumentError) as caught:
        resolve_here("env.toml", SiteWords(), environ=environ)
    assert "cordee env pull" in caught.value.next
