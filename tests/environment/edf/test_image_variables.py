"""A real image with variables of its own: they go before the host's, in `resolve`, `explain`, a job's plan and what is executed."""

from __future__ import annotations

import pytest

from cordee.environment.edf.image import config_in, is_archive
from cordee.environment.images import Store
from cordee.environment.prepare import resolve_here
from cordee.environment.start import SiteWords, start
from cordee.testing.oci import Entry, OciLayout

EDF = 'image = "oci:./layout"\nworkdir = "${BASE}"\nmounts = ["${HOME}"]\n[env]\nPATH = "${PATH}:/custom/bin"\n'


@pytest.fixture
def environ(tmp_path, monkeypatch):
    """Return the host's variables, in a folder with an EDF and a layout whose image sets PATH, HOME and BASE."""
    config = {"Env": ["PATH=/opt/bin", "HOME=/root", "BASE=/opt"], "WorkingDir": "/opt"}
    OciLayout(tmp_path / "layout").add([[Entry("opt/file", b"x")]], config=config)
    (tmp_path / "env.toml").write_text(EDF)
    monkeypatch.chdir(tmp_path)
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "EDF_IMAGESTORE": str(tmp_path / "store")}


def test_an_archive_is_asked_only_where_it_may_be_imported(environ, tmp_path):
    assert is_archive(f"oci:{tmp_path}/layout")
    store = Store(tmp_path / "store")
    assert config_in(store)(f"oci:{tmp_path}/layout") is None
    config = config_in(store, imports=True)(f"oci:{tmp_path}/layout")
    assert config is not None
    assert config.env["PATH"] == "/opt/bin"


def test_what_holds_inside_is_expanded_by_the_image_and_what_holds_outside_by_the_host(environ, tmp_path):
    found = resolve_here("env.toml", SiteWords(), environ=environ, imports=True).environment
    assert found.env == {"PATH": "/opt/bin:/custom/bin"}
    assert found.workdir == "/opt"
    assert [mount.source for mount in found.mounts] == [str(tmp_path)]
    assert found.variables(environ)["HOME"] == "/root"


def test_a_command_gets_the_images_path_extended(environ):
    assert start("env.toml", ["true"], environ=environ).env["PATH"] == "/opt/bin:/custom/bin"
