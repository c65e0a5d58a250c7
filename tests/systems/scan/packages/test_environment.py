"""Environments as pip makes them: what is installed, what runs of itself, and the bill of materials."""

from __future__ import annotations

import json

import pytest

from cordee.systems.scan.packages.installed import conda_package, python_package
from cordee.systems.scan.packages.model import FoundPackage
from cordee.systems.scan.packages.sbom import bill

from .. import made_files
from . import made_packages as made

BAD = "import os, base64; exec(base64.b64decode('cGFzcw=='))\n"
EDITABLE = "import __editable___mine_1_0_finder; __editable___mine_1_0_finder.install()\n"


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv")
    wheels = [
        made.wheel(folder, "numpy", "1.26.4"),
        made.wheel(folder, "torch", "2.4.0+cpu", ("numpy>=1.2", 'pytest; extra == "dev"')),
        made.wheel(folder, "reqeusts", "1.0"),
        made.wheel(folder, "hidden-helper", "1.0", **{"helper_init.pth": BAD, "mine.pth": EDITABLE, "odd.pth": "import odd_one\n"}),
        made.wheel(
            folder, "shadow", "1.0",
            **{"INFO/entry_points.txt": "[console_scripts]\nsrun = shadow:main\n[torch.backends]\nx = shadow:load\n", "sitecustomize.py": "x = 1\n"},
        ),
    ]  # fmt: skip
    return made.venv(folder / "env", wheels)


def scan(*arguments):
    result = made_files.cordee("scan", *arguments, "--json")
    return json.loads(result.output), result.exit_code


def test_what_runs_of_itself_is_told_and_what_tools_write_is_not(venv):
    document, code = scan(venv)
    found = {(one["rule"], one["severity"], one["where"].rpartition("/")[2]) for one in document["findings"]}
    assert found == {
        ("package-pth", "block", "helper_init.pth:1"),
        ("package-pth", "unknown", "odd.pth:1"),
        ("package-sitecustomize", "warn", "sitecustomize.py"),
        ("package-taken-command", "unknown", "srun"),
        ("package-plugin", "warn", "entry_points.txt"),
        ("package-typosquat", "unknown", ""),
    }
    assert code == 1
    assert {(one["name"], one["version"]) for one in document["packages"]} >= {
        ("numpy", "1.26.4"),
        ("torch", "2.4.0+cpu"),
    }
    assert any("3 names in no list" in note for note in document["notes"])


def test_an_environment_below_a_project_is_looked_at_and_not_entered(venv):
    document, _ = scan(venv.parent, "--packages")
    assert document["left_out"] == [str(venv)]
    assert any(one["rule"] == "package-pth" for one in document["findings"])
    assert document["files"] == 0


def test_what_is_known_against_an_installed_version_is_told_once_under_all_its_names(venv, tmp_path):
    events = [{"introduced": "0"}, {"fixed": "2.5"}]
    records = [
        made.record("PYSEC-2024-1", "Torch", events, aliases=["CVE-2024-1"]),
        made.record("GHSA-x", "torch", events, aliases=["CVE-2024-1"], database_specific={"severity": "HIGH"}),
        made.record("GHSA-gone", "torch", events, withdrawn="2024-02-01T00:00:00Z"),
        made.record("GHSA-later", "torch", [{"introduced": "2.4.1"}]),
        made.record("MAL-2024-1", "hidden_helper", [{"introduced": "0"}]),
    ]
    place = made.snapshot(tmp_path / "all.zip", *records)
    document, code = scan(venv, "--advisories", place)
    known = [one for one in document["findings"] if one["rule"] in ("package-advisory", "package-malicious")]
    assert [(one["rule"], one["where"]) for one in known] == [
        ("package-malicious", "hidden-helper"),
        ("package-advisory", "torch"),
    ]
    assert "1 known vulnerability: CVE-2024-1 (high); fixed in 2.5" in known[1]["text"]
    assert (document["advisories"]["records"], code) == (4, 1)


def test_a_bill_of_materials_is_one_of_cyclonedx(venv, tmp_path):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    scan(venv, "--sbom", tmp_path / "bom.json")
    text = (tmp_path / "bom.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    parts = {one["name"]: one for one in bill["components"]}
    assert parts["torch"]["purl"] == "pkg:pypi/torch@2.4.0%2Bcpu"
    needs = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert needs["pkg:pypi/torch@2.4.0%2Bcpu"] == ["pkg:pypi/numpy@1.26.4"]
    assert made_files.cordee("scan", venv, "--sbom", tmp_path / "no" / "bom.json").exit_code == 2


def test_all_licences_and_the_size_that_a_package_says_are_kept():
    lines = ("", "OSI Approved", "OSI Approved :: MIT License", "OSI Approved :: Apache Software License")
    text = "Name: two\nVersion: 1\n" + "".join(f"Classifier: License :: {line}\n" for line in lines)
    found = python_package(text.encode(), "")
    assert found is not None
    assert found.licence == "MIT License\nApache Software License"
    paths = {"paths": [{"_path": "a", "size_in_bytes": 3}, {"_path": "b"}, {"_path": "c", "size_in_bytes": 4}]}
    conda = conda_package(json.dumps({"name": "x", "version": "1", "paths_data": paths}).encode(), "")
    assert conda is not None
    assert conda.bytes == 7


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("MIT", [{"license": {"id": "MIT"}}]),
        ("apache-2.0 or MIT", [{"expression": "Apache-2.0 OR MIT"}]),
        ("BSD-3-Clause\nMIT License", [{"license": {"id": "BSD-3-Clause"}}, {"license": {"name": "MIT License"}}]),
        ("GPL-2+", [{"license": {"name": "GPL-2+"}}]),
        ("LicenseRef-Mine", [{"expression": "LicenseRef-Mine"}]),
    ],
)
def test_licences_have_their_spdx_identifiers_where_they_are_such(said, told):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    document = bill([FoundPackage("x", "1", licence=said)], "here")
    assert document["components"][0]["licenses"] == told
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) is None


def test_a_conda_prefix_is_read_with_its_records(tmp_path):
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").touch()
    said = {"name": "mkl", "version": "2024.0", "license": "X", "sha256": "a" * 64}
    (tmp_path / "conda-meta" / "mkl-2024.0-h1.json").write_text(json.dumps(said))
    (tmp_path / "conda-meta" / "broken.json").write_text("{")
    (tmp_path / "conda-meta" / "history").write_text("")
    document, code = scan(tmp_path, "--sbom", tmp_path / "bom.json")
    assert [(one["name"], one["kind"]) for one in document["packages"]] == [("mkl", "conda")]
    assert (document["findings"], code) == ([], 0)


def test_links_out_of_an_environment_are_not_followed(tmp_path):
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    (tmp_path / "secret").write_text("import os; os.system('x')\n")
    (site / "a.pth").symlink_to(tmp_path / "secret")
    (site / "b-1.dist-info").symlink_to(tmp_path)
    document, _ = scan(tmp_path / "env")
    assert [(one["rule"], one["severity"]) for one in document["findings"]] == [("package-pth", "unknown")]
