"""Classes of other people: found where the profile allows, asked what they take, never loaded here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.systems.vetting.node.checks import run_checks
from cordee.systems.vetting.protocol import classes as protocol_classes
from cordee.systems.vetting.protocol.document import load_protocol
from cordee.systems.vetting.protocol.site import ProtocolSite

DISK = """
import sys
from cordee.systems.vetting.node.checks import Check, Parameter

sys.loaded_where = True

class Speed(Check):
    name = "my.speed"
    title = "Is it fast?"
    deadline_s = 7.0
    parameters = (
        Parameter("min_speed", "bandwidth", "slowest", needed=True),
        Parameter("mode", "text", "how", default="plain", choices=("plain", "direct")),
    )

    def run(self, parameters, context):
        return self.result("pass", f"at least {parameters['min_speed']:g}, {parameters['mode']}")

class Odd(Check):
    parameters = (Parameter("x", "colour", "no such kind"),)

class NoCheck:
    pass
"""


@pytest.fixture
def folder(tmp_path):
    protocol_classes._ask.cache_clear()
    (tmp_path / "checks" / "mine").mkdir(parents=True)
    (tmp_path / "checks" / "mine" / "disk.py").write_text(DISK)
    (tmp_path / "job").mkdir()
    return tmp_path


@pytest.fixture
def load(folder):
    def call(kind, *lines, allowed=("checks",)):
        text = f"name: x\nevals:\n- name: a\n  type: '{kind}'\n" + "".join(f"  {line}\n" for line in lines)
        (folder / "job" / "p.yaml").write_text(text)
        checks = None if allowed is None else tuple(str(folder / name) for name in allowed)
        return load_protocol(folder / "job" / "p.yaml", ProtocolSite(checks=checks))

    return call


@pytest.fixture
def fault(load):
    def call(*arguments, **more):
        with pytest.raises(DocumentError) as caught:
            load(*arguments, **more)
        (found,) = caught.value.findings
        assert found.line
        assert found.next
        return found

    return call


@pytest.mark.parametrize("kind", ["mine.disk:Speed", "../checks/mine/disk.py:Speed"])
def test_a_class_in_an_allowed_folder_runs_with_converted_parameters(load, folder, kind):
    document = load(kind, "min_speed: 1MB/s", "mode: direct").resolved()
    assert document["classes"] == {kind: f"{folder.resolve()}/checks/mine/disk.py:Speed"}
    (entry,) = document["checks"]
    assert entry["parameters"] == {"min_speed": 1e6, "mode": "direct"}
    assert entry["deadline_s"] == 7.0
    assert not hasattr(sys, "loaded_where")
    request = {"checks": document["checks"], "classes": document["classes"], "python": sys.executable}
    (result,) = run_checks(request)
    assert (result["status"], result["evidence"]) == ("pass", "at least 1e+06, direct")


def test_its_parameters_are_checked_before_anything_runs(fault):
    assert fault("mine.disk:Speed", "min_sped: 1", "min_speed: 1").next == "did you mean min_speed?"
    assert "min_speed is missing" in fault("mine.disk:Speed").text
    assert "mode is not one of its values" in fault("mine.disk:Speed", "min_speed: 1", "mode: fast").text


def test_a_class_from_elsewhere_is_refused_by_name(fault, folder):
    (folder / "job" / "own.py").write_text(DISK)
    found = fault("./own.py:Speed")
    assert f"{folder.resolve()}/job/own.py is not in a folder" in found.text
    assert found.allowed == [str(folder / "checks")]
    assert "no file for own:Speed" in fault("own:Speed").text


def test_a_link_out_of_an_allowed_folder_does_not_help(fault, folder):
    (folder / "job" / "own.py").write_text(DISK)
    (folder / "checks" / "linked.py").symlink_to(folder / "job" / "own.py")
    assert "not in a folder" in fault("linked:Speed").text


def test_where_the_profile_names_no_folder_the_protocols_own_is_allowed(load, fault, folder):
    (folder / "job" / "own.py").write_text(DISK)
    assert load("own:Speed", "min_speed: 1", allowed=None).resolved()["classes"]
    assert "no file" in fault("mine.disk:Speed", allowed=None).text
    assert "no file" in fault("own:Speed", allowed=()).text


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("mine.disk:Gone", "cannot be loaded"),
        ("mine.disk:NoCheck", "it is no cordee.checks.Check"),
        ("mine.disk:Odd", "of kind colour"),
        ("mine.broken:Speed", "cannot be loaded: ZeroDivisionError"),
        ("mine.silent:Speed", "cannot be loaded"),
        ("mine.disk:", "is not a class"),
        ("a b:C", "is not a class"),
    ],
)
def test_a_class_that_is_none_is_told(fault, folder, kind, words):
    (folder / "checks" / "mine" / "broken.py").write_text("1 / 0")
    (folder / "checks" / "mine" / "silent.py").write_text("import os; os._exit(3)")
    assert words in fault(kind).text


def test_a_package_offers_checks_by_entry_points(load, tmp_path, monkeypatch):
    info = tmp_path / "packages" / "fast_checks-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fast-checks\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[cordee.checks]\nfast.disk = fast_checks:Speed\n")
    (info.parent / "fast_checks.py").write_text(DISK)
    monkeypatch.syspath_prepend(str(info.parent))
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}:{Path(protocol_classes.__file__).parents[4]}")
    protocol_classes._entry_points.cache_clear()
    document = load("fast.disk", "min_speed: 5", allowed=()).resolved()
    assert document["classes"] == {"fast.disk": "fast_checks:Speed"}
    protocol_classes._entry_points.cache_clear()


def test_the_digest_follows_the_code_of_a_class(load, folder):
    first = load("mine.disk:Speed", "min_speed: 1").resolved()["digest"]
    (folder / "checks" / "mine" / "disk.py").write_text(DISK + "\n# changed\n")
    assert load("mine.disk:Speed", "min_speed: 1").resolved()["digest"] != first
