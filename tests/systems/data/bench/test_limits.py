"""Where measured limits are kept, and which one is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cordee.systems.data.node.read import limits
from cordee.systems.data.node.read.limits import find_limit, write_limits


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def on(host: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits.socket, "gethostname", lambda: host)


def test_nothing_measured_is_no_limit(environ, tmp_path):
    assert find_limit("abc", tmp_path, environ=environ) is None


def test_what_was_measured_is_found_by_identity_and_kind_of_cache(environ, tmp_path):
    write_limits("abc", tmp_path, {"warm": 4e9, "cold": 1e9}, 100.0, environ)
    assert find_limit("abc", tmp_path, environ=environ).bytes_per_s == 1e9
    assert find_limit("abc", tmp_path, "warm", environ).bytes_per_s == 4e9
    assert find_limit("other", tmp_path, environ=environ) is None


def test_this_host_goes_before_others_and_the_newest_before_older_ones(environ, tmp_path, monkeypatch):
    for host, rate, measured in (("n1", 1.0, 100.0), ("n1", 2.0, 200.0), ("n2", 3.0, 300.0)):
        on(host, monkeypatch)
        write_limits("abc", tmp_path, {"warm": rate}, measured, environ)
    on("n1", monkeypatch)
    assert find_limit("abc", tmp_path, environ=environ).bytes_per_s == 2.0
    on("n3", monkeypatch)
    assert find_limit("abc", tmp_path, environ=environ).host == "n2"


def test_a_copy_on_another_file_system_has_limits_of_its_own(environ, tmp_path):
    write_limits("abc", tmp_path, {"warm": 1.0}, 100.0, environ)
    assert find_limit("abc", "/proc/set", environ=environ) is None
    write_limits("abc", "s3://bucket/set", {"warm": 2.0}, 100.0, environ)
    assert find_limit("abc", "s3://bucket/set/", environ=environ).bytes_per_s == 2.0
    assert find_limit("abc", tmp_path, environ=environ).bytes_per_s == 1.0


def test_identities_of_any_form_are_kept(environ, tmp_path):
    for identity in ("/store/a folder", "..", "a" * 300):
        write_limits(identity, tmp_path, {"cold": 5.0}, 1.0, environ)
        assert find_limit(identity, tmp_path, environ=environ).bytes_per_s == 5.0


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema": "cordee.data-limits/9"}', '{"schema": 1, "limits": 3}'])
def test_a_damaged_file_is_no_limit_and_is_replaced(environ, tmp_path, damage):
    path = Path(write_limits("abc", tmp_path, {"warm": 1.0}, 1.0, environ))
    path.write_text(damage)
    assert find_limit("abc", tmp_path, environ=environ) is None
    write_limits("abc", tmp_path, {"warm": 2.0}, 2.0, environ)
    assert find_limit("abc", tmp_path, environ=environ).bytes_per_s == 2.0
    assert json.loads(path.read_text())["schema"] == limits.SCHEMA


def test_a_rate_that_is_none_is_left_out(environ, tmp_path):
    path = Path(write_limits("abc", tmp_path, {"warm": 1.0}, 1.0, environ))
    document = json.loads(path.read_text())
    document["limits"][0]["bytes_per_s"] = "fast"
    path.write_text(json.dumps(document))
    assert find_limit("abc", tmp_path, environ=environ) is None
