"""What is pulled or packed is looked into at once."""

from __future__ import annotations

import json

import pytest

from cordee.testing.oci import LayerEntry, OciLayout

from .. import made_files
from ..packages import made_packages

KEY = "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"


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """Returns what writes the profile of the cluster `site`."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("EDF_IMAGESTORE", str(tmp_path / "store"))
    monkeypatch.setenv("CORDEE_ON", "site")
    (tmp_path / "store").mkdir()
    folder = tmp_path / "config" / "cordee" / "clusters"
    folder.mkdir(parents=True)

    def write(text=""):
        (folder / "site.toml").write_text('scheduler = "local"\n' + text)

    write()
    return write


def test_an_image_that_is_pulled_is_looked_into_and_a_site_may_refuse_it(tmp_path, profile):
    layout = OciLayout(tmp_path / "layout")
    layout.add([[LayerEntry("app/.env", f"HF_TOKEN={KEY}\n".encode())], [LayerEntry("app/.wh..env")]])
    first = made_files.cordee("env", "pull", f"oci:{layout.folder}")
    assert first.exit_code == 0
    assert "in layer 1: a later one" in first.output
    assert "scan-image-secret-layer" in first.output
    again = made_files.cordee("env", "pull", f"oci:{layout.folder}", "--json")
    assert json.loads(again.output)["pulled"][0]["findings"] == []
    profile('[scan]\npolicy = "block"\n')
    other = OciLayout(tmp_path / "other")
    other.add([[LayerEntry("app/.env", f"HF_TOKEN={KEY}\n".encode())]])
    refused = made_files.cordee("env", "pull", f"oci:{other.folder}")
    assert refused.exit_code == 1
    assert "error: a key of the kind hugging-face" in refused.output


@pytest.mark.usefixtures("real")
def test_a_packed_environment_is_looked_into(tmp_path, profile):
    wheel = made_packages.wheel(tmp_path, "helper", "1.0", **{"helper.pth": "import os; os.system('x')\n"})
    venv = made_packages.venv(tmp_path / "env", [wheel])
    result = made_files.cordee("env", "pack", venv, "-o", tmp_path / "env.sqsh", "--no-verify", "--json")
    document = json.loads(result.output)
    assert [(one["rule"], one["severity"]) for one in document["findings"]] == [("scan-package-pth", "warn")]
    scanned = made_files.cordee("scan", tmp_path / "env.sqsh", "--json")
    assert [(one["name"], one["version"]) for one in json.loads(scanned.output)["packages"]] == [("helper", "1.0")]
    assert made_files.cordee("scan", tmp_path, "--on", "nowhere").exit_code == 2
