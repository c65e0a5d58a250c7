"""Snapshots of advisories: which versions they are about, how old they are, and what is wrong with them."""

from __future__ import annotations

import time

import pytest

from cordee.core.errors import UsageError
from cordee.systems.scan.packages.advisories import AdvisorySnapshot
from cordee.systems.scan.packages.model import FoundPackage

from ..made_files import cordee
from . import made_packages as made

ANY = [{"introduced": "0"}]


def opened(tmp_path, *records):
    return AdvisorySnapshot(str(made.snapshot(tmp_path / "all.zip", *records)), tmp_path / "cache")


@pytest.mark.parametrize(
    ("events", "affected", "free"),
    [
        (ANY, ["0.1", "9!1", "1.0rc1"], []),
        ([{"introduced": "1.0"}, {"fixed": "1.2"}], ["1.0", "1.1.post1", "1.2rc1", "1.2.dev0"], ["0.9", "1.0rc1", "1.2", "1.2+cu121"]),
        ([{"introduced": "0"}, {"last_affected": "1.2"}], ["1.2", "1.2.0", "0"], ["1.2.1", "1.2.post1"]),
        ([{"fixed": "2.1"}, {"introduced": "2.0"}, {"fixed": "1.1"}, {"introduced": "1.0"}], ["1.0", "2.0.5"], ["1.1", "1.9", "2.1"]),
        ([{"introduced": "nonsense"}, {"fixed": "1"}], [], ["0.5", "2"]),
    ],
)  # fmt: skip
def test_ranges_are_those_of_pep_440(tmp_path, events, affected, free):
    snapshot = opened(tmp_path, made.record("X-1", "a", events))
    for version in affected:
        assert snapshot.about([FoundPackage("A", version)]), version
    for version in free:
        assert not snapshot.about([FoundPackage("A", version)]), version
    snapshot.close()


def test_versions_that_are_listed_are_meant_whatever_the_ranges_say(tmp_path):
    one = made.record("X-1", "a", [{"introduced": "5"}])
    one["affected"][0]["versions"] = ["1.0", "not-a-version"]
    snapshot = opened(tmp_path, one)
    assert [bool(snapshot.about([FoundPackage("a", each)])) for each in ("1.0.0", "1.1", "not-a-version", "also-none")] == [True, False, True, False]  # fmt: skip


def test_advisories_of_a_distribution_are_left_out(tmp_path):
    snapshot = opened(
        tmp_path,
        made.record("DEBIAN-1", "openssl", ANY, "Debian:12"),
        made.record("X-1", "openssl", [{"introduced": "2"}]),
    )
    assert snapshot.state.records == 1
    assert not snapshot.about(
        [FoundPackage("openssl", "3.0.14-1", "deb", vendor="debian"), FoundPackage("openssl", "1")]
    )


def judged(snapshot):
    return [(sight.rule, sight.severity) for sight in snapshot.state.sights(time.time())]


def test_the_age_of_a_snapshot_is_that_of_its_newest_record(tmp_path):
    day = time.strftime("%Y-%m-%dT00:00:00Z", time.gmtime(time.time() - 3 * 86_400))
    fresh = opened(tmp_path, made.record("X-1", "a", ANY, modified=day))
    assert (judged(fresh), fresh.state.age(time.time())) == ([], "3 days old")
    old = opened(tmp_path, made.record("X-1", "a", ANY, modified="2020-01-01T00:00:00Z"))
    assert judged(old) == [("advisories-old", "warn")]
    future = opened(tmp_path, made.record("X-1", "a", ANY, modified="2999-01-01T00:00:00Z"))
    assert (judged(future), future.state.age(time.time())) == ([("advisories-future", "unknown")], "from the future")


def test_a_snapshot_that_is_cut_off_or_foreign_or_damaged_is_said(tmp_path):
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    whole = made.snapshot(
        tmp_path / "all.zip", *(made.record(f"X-{n}", "a", ANY, modified=now) for n in range(50))
    ).read_bytes()
    for content, expected in {
        whole[: len(whole) // 2]: "advisories-broken",
        b"<html>please log in</html>": "advisories-broken",
        b"": "advisories-broken",
        whole[:60] + b"\xff\xff\xff\xff" + whole[64:]: "advisories-broken",
    }.items():
        (tmp_path / "all.zip").write_bytes(content)
        snapshot = AdvisorySnapshot(str(tmp_path / "all.zip"), tmp_path / "cache")
        assert (expected, "unknown") in judged(snapshot), content[:20]
    (tmp_path / "all.zip").write_bytes(b"")
    (tmp_path / "requirements.txt").write_text("requests==2.0\n")
    told = cordee("scan", "--packages", tmp_path / "requirements.txt", "--advisories", tmp_path / "all.zip").output
    assert "advisories: no records\n" in told
    foreign = opened(
        tmp_path,
        {"a": 1},
        "[1]",
        b"\xff\xfe",
        "[" * 100_000,
        {"id": "X", "modified": "x", "affected": [1, {"package": 2}]},
    )
    assert ("advisories-broken", "unknown") in judged(foreign)
    assert (foreign.state.unreadable, foreign.state.records) == (4, 0)
    with pytest.raises(UsageError, match="no snapshot"):
        AdvisorySnapshot(str(tmp_path / "missing"))


def test_a_folder_of_zips_and_records_is_a_snapshot_and_what_was_read_is_kept(tmp_path):
    (tmp_path / "osv" / "PyPI").mkdir(parents=True)
    made.snapshot(tmp_path / "osv" / "PyPI" / "all.zip", made.record("X-1", "a", ANY))
    made.snapshot(tmp_path / "osv" / "more.zip", made.record("X-2", "b", ANY))
    first = AdvisorySnapshot(str(tmp_path / "osv"), tmp_path / "cache")
    assert first.state.records == 2
    kept = list((tmp_path / "cache").iterdir())
    assert AdvisorySnapshot(str(tmp_path / "osv"), tmp_path / "cache").state == first.state
    assert list((tmp_path / "cache").iterdir()) == kept
    kept[0].write_bytes(b"damaged")
    assert AdvisorySnapshot(str(tmp_path / "osv"), tmp_path / "cache").state == first.state
    (tmp_path / "file").touch()
    assert AdvisorySnapshot(str(tmp_path / "osv"), tmp_path / "file").state == first.state
