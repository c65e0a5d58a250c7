"""The data sets of a job: where they lie, what is seen of them, and what is said."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from cordee.core.findings import Finding
from cordee.job.plan.model import DataSet
from cordee.job.plan.render import render_plan
from cordee.systems.data import examine as examine_data
from cordee.systems.data.examine import shown_of
from cordee.systems.data.last_use import DataUse
from cordee.systems.data.listing import look
from cordee.systems.data.node.shards.index import Shard, write_index
from cordee.systems.environments.examine import with_shown
from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment

from ...job.plan.conftest import HEAD, Make

SLURM = 'name = "alps"\nscheduler = "slurm"\n'


def _packed(folder: Path, samples: int = 4) -> Path:
    """Make a folder that looks packed: one shard of zeros and its index."""
    folder.mkdir(parents=True)
    (folder / "corpus-000000.tar").write_bytes(bytes(1024 * samples))
    ends = np.arange(1, samples + 1) * 2
    columns = {
        "shard": np.zeros(samples, "u4"),
        "offset": np.arange(samples)[:, None] * 1024,
        "length": np.full((samples, 1), 512),
        "crc32": np.zeros((samples, 1), "u4"),
        "key_end": ends,
        "keys": np.zeros(int(ends[-1]), "u1"),
    }
    shards = [Shard("corpus-000000.tar", 1024 * samples, samples)]
    write_index(folder / "dataset.index", name="corpus", fields=["bin"], classes=[], shards=shards, columns=columns)
    return folder


def _of(findings: list[Finding], rule: str) -> Finding:
    (found,) = [finding for finding in findings if finding.rule == rule]
    return found


def test_a_packed_data_set_is_in_the_plan_and_in_every_ranks_environment(make: Make, tmp_path: Path) -> None:
    place = _packed(tmp_path / "job/corpus")
    _, plan, findings = make(HEAD + '[data.my-corpus]\nfrom = "corpus"\n')
    assert findings == []
    assert plan.step.tasks.env == {"CORDEE_DATA_MY_CORPUS": str(place)}
    (data,) = plan.step.data
    assert (data.kind, data.samples, data.bytes, data.whole) == ("packed", 4, 2048, True)
    assert data.identity is not None
    shown = render_plan(plan, "")
    assert f"data        my-corpus: packed, 4 samples, 2.05 kB at {place}" in shown


def test_a_run_elsewhere_reads_its_own_place(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/small").mkdir()
    (tmp_path / "job/small/a").touch()
    text = HEAD + '[data.corpus]\nfrom = "/store/not/here"\n[on.local.data.corpus]\nfrom = "small"\n'
    _, plan, findings = make(text)
    assert findings == []
    assert plan.step.data[0].place == str(tmp_path / "job/small")


def test_a_place_that_is_not_there_names_the_nearest_at_its_line(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/corpus").mkdir()
    _, plan, findings = make(HEAD + '[data.corpus]\nfrom = "corpsu"\n')
    found = _of(findings, "no-data-set")
    assert (found.severity, found.line, found.given) == ("error", 4, "corpsu")
    assert found.next == f"did you mean {tmp_path}/job/corpus?"
    assert plan.step.data == ()


@pytest.mark.parametrize(
    ("to", "where"), [("memory", "the memory of each node before"), ("node", "a disk of each node before")]
)
def test_staging_is_planned_and_said(make: Make, tmp_path: Path, to: str, where: str) -> None:
    _packed(tmp_path / "job/corpus")
    _, plan, findings = make(HEAD + f'[data.corpus]\nfrom = "corpus"\nto = "{to}"\n')
    found = _of(findings, "data-staged")
    assert (found.severity, found.line) == ("info", 5)
    assert f"corpus (2.05 kB) is brought to {where}" in found.text
    assert plan.step.data[0].stage is not None
    assert {"stager/data", "companion/data"} <= set(plan.node_parts)


def test_without_to_and_where_it_is_the_nodes_own_nothing_is_staged(make: Make, tmp_path: Path) -> None:
    _packed(tmp_path / "job/corpus")
    _, plan, findings = make(HEAD + '[data.corpus]\nfrom = "corpus"\n')
    assert (findings, plan.step.data[0].to, plan.step.data[0].stage) == ([], "shared", None)
    _, plan, findings = make(HEAD + '[data.corpus]\nfrom = "corpus"\nto = "auto"\n')
    assert "read in place: it lies on the nodes' own storage" in _of(findings, "data-in-place").text
    assert plan.step.data[0].stage is None


def test_what_does_not_fit_into_the_jobs_memory_is_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/large.bin").touch()
    os.truncate(tmp_path / "job/large.bin", 3_000_000_000)
    text = HEAD + '[need]\nmemory = "4GB"\n[data.corpus]\nfrom = "large.bin"\nto = "memory"\n'
    found = _of(make(text)[2], "memory-too-small")
    assert (found.severity, found.given, found.allowed) == ("error", "need.memory 4 GB", "at least 6 GB")


@pytest.mark.parametrize("to", ["auto", "shared", "node"])
def test_only_what_is_brought_to_nodes_is_prepared(make: Make, tmp_path: Path, to: str) -> None:
    _packed(tmp_path / "job/corpus")
    text = HEAD + f'[data.corpus]\nfrom = "corpus"\nto = "{to}"\nprepare = "python x.py --n 2"\n'
    _, plan, findings = make(text)
    if to == "node":
        assert plan.step.data[0].stage.prepare == ("python", "x.py", "--n", "2")
        return
    found = _of(findings, "bad-value")
    assert (found.severity, found.line, found.given, found.allowed) == ("error", 6, to, ["memory", "node"])


@pytest.mark.parametrize(
    ("to", "files", "script", "why"),
    [
        ("node", 3, "", None),
        ("shared", 3, "", "it is read in place"),
        ("memory", 1, "", "it has 1 files, and there are 2 nodes"),
        ("node", 3, "import cordee\ncordee.dataset('corpus')\n", "whose order goes over all samples"),
        ("node", 0, "", "it is of the kind packed"),
    ],
)
def test_only_files_that_stand_for_themselves_are_parted(
    make: Make, tmp_path: Path, to: str, files: int, script: str, why: str | None
) -> None:
    folder = tmp_path / "job/corpus"
    for number in range(files):
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.parquet").write_bytes(b"x" * 9)
    if not files:
        _packed(folder)
    (tmp_path / "job/train.py").write_text(script)
    text = HEAD + f'[need]\nnodes = 2\n[data.corpus]\nfrom = "corpus"\nto = "{to}"\npart = "node"\n'
    _, plan, findings = make(text)
    if why is None:
        assert plan.step.data[0].stage.part
        return
    found = _of(findings, "bad-value")
    assert (found.severity, found.line, found.given, found.allowed) == ("error", 8, "node", "all")
    assert why in found.text


def test_auto_says_what_each_node_will_decide(site: Make, tmp_path: Path) -> None:
    place = _packed(tmp_path / "store/corpus")
    profile = f'{SLURM}[storage.store]\npath = "{tmp_path}/store"\n'
    profile += '[storage.nvme]\npath = "/nvme"\nkind = "node"\n'
    _, plan, findings = site("nodes = 1", profile, f'[data.corpus]\nfrom = "{place}"\nto = "auto"\n')
    assert "the memory of each node where it fits" in _of(findings, "data-staged").text
    assert plan.step.data[0].stage.tiers == ("/nvme",)


@pytest.mark.parametrize(("epochs", "staged"), [(0.25, False), (3.0, True), (None, True)])
def test_auto_goes_by_how_much_the_last_run_read(
    site: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: float | None, staged: bool
) -> None:
    place = _packed(tmp_path / "store/corpus")
    used = None if epochs is None else DataUse("a-20261101T000000Z-abcd", epochs)
    monkeypatch.setattr(examine_data, "last_use", lambda runs, where: used if where == str(place) else None)
    profile = f'{SLURM}[storage.store]\npath = "{tmp_path}/store"\n'
    for to in ("auto", "memory"):
        _, plan, findings = site("nodes = 1", profile, f'[data.corpus]\nfrom = "{place}"\nto = "{to}"\n')
        assert (plan.step.data[0].stage is not None) == (staged or to == "memory")
        if not staged and to == "auto":
            assert "the last run, a-20261101T000000Z-abcd, trained on 25 % of it" in _of(findings, "data-in-place").text


@pytest.mark.usefixtures("real")
def test_two_names_of_one_variable_are_refused(make: Make, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    data = "".join(f'[data.{name}]\nfrom = "{tmp_path}/pictures"\n' for name in ('"a-b"', "a_B"))
    found = _of(make(HEAD + data)[2], "bad-value")
    assert (found.severity, found.text) == ("error", "a_B and a-b would both be CORDEE_DATA_A_B")


def test_a_shared_data_set_is_named_with_its_licence(site: Make, tmp_path: Path) -> None:
    place = _packed(tmp_path / "store/imagenet")
    profile = f'{SLURM}[datasets.imagenet]\npath = "{place}"\nlicence = "research only"\n[storage.store]\n'
    profile += f'path = "{tmp_path}/store"\nbandwidth = "2GB"\n'
    _, plan, findings = site("nodes = 1", profile, '[data.pictures]\nfrom = "imagenet"\n')
    (data,) = plan.step.data
    assert (data.shared, data.licence, data.tier) == ("imagenet", "research only", "store")
    assert data.bandwidth_bytes_per_s == 2_000_000_000
    assert "shared as imagenet; licence: research only" in render_plan(plan, "")
    assert not [finding for finding in findings if finding.line and "data" in finding.rule]


@pytest.mark.parametrize("case", ["name", "identity"])
def test_a_copy_of_what_the_site_keeps_is_told(site: Make, tmp_path: Path, case: str) -> None:
    kept = _packed(tmp_path / "store/kept")
    _packed(tmp_path / ("job/imagenet" if case == "name" else "job/mine"), samples=5 if case == "name" else 4)
    profile = f'{SLURM}[datasets.imagenet]\npath = "{kept}"\n'
    source = "imagenet" if case == "name" else "mine"
    findings = site("nodes = 1", profile, f'[data.x]\nfrom = "{source}"\n')[2]
    found = _of(findings, "shared-data-set")
    assert ("this very data set" in found.text) == (case == "identity")
    assert found.allowed == str(kept)


def test_many_small_files_on_shared_storage_are_told(
    site: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examine_data, "MANY_FILES", 5)
    (tmp_path / "job/files/a").mkdir(parents=True)
    for number in range(6):
        (tmp_path / f"job/files/a/{number}.jpg").write_bytes(bytes(100))
    found = _of(site("nodes = 1", SLURM, '[data.x]\nfrom = "files"\n')[2], "small-files")
    assert "6 files of 100 B in the mean" in found.text
    assert "cordee data pack" in str(found.next)
    node = f'{SLURM}[storage.disk]\npath = "{tmp_path}"\nkind = "node"\n'
    assert not [one for one in site("nodes = 1", node, '[data.x]\nfrom = "files"\n')[2] if one.rule == "small-files"]


def test_shards_without_an_index_are_told(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/shards").mkdir()
    (tmp_path / "job/shards/x-000000.tar").write_bytes(bytes(1024))
    found = _of(make(HEAD + '[data.x]\nfrom = "shards"\n')[2], "no-index")
    assert (found.severity, "--index-only" in str(found.next)) == ("warn", True)


@pytest.mark.parametrize("fault", ["cut index", "short shard", "no shard"])
def test_a_packed_data_set_that_is_damaged_is_an_error(make: Make, tmp_path: Path, fault: str) -> None:
    place = _packed(tmp_path / "job/corpus")
    if fault == "cut index":
        os.truncate(place / "dataset.index", 100)
    elif fault == "short shard":
        os.truncate(place / "corpus-000000.tar", 1000)
    else:
        (place / "corpus-000000.tar").unlink()
    found = _of(make(HEAD + '[data.x]\nfrom = "corpus"\n')[2], "data-unusable")
    assert found.severity == "error"
    assert fault == "cut index" or "corpus-000000.tar" in found.text


def test_what_this_user_may_not_read_is_an_error(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job/x").mkdir()
    (tmp_path / "job/x/a").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = _of(make(HEAD + '[data.x]\nfrom = "x"\n')[2], "data-unreadable")
    assert (found.severity, found.next) == ("error", "ask whoever keeps it")


def test_files_that_a_tier_soon_removes_are_told(make: Make, tmp_path: Path) -> None:
    place = _packed(tmp_path / "job/corpus")
    profile = f'[storage.scratch]\npath = "{tmp_path}"\npurge = "30d"\n'
    (tmp_path / "clusters").mkdir()
    (tmp_path / "clusters/local.toml").write_text(profile)
    text = HEAD + '[data.x]\nfrom = "corpus"\n'
    assert make(text)[2] == []
    for days, when in ((28, "go in "), (40, "go at any time")):
        for path in place.iterdir():
            os.utime(path, (time.time() - days * 86400,) * 2)
        assert when in _of(make(text)[2], "purge-near").text


def test_a_data_set_that_other_nodes_do_not_see_is_told(
    site: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _packed(tmp_path / "job/corpus")
    monkeypatch.setattr(examine_data, "local_kind", lambda path: "xfs")
    profile = f"{SLURM}nodes_elsewhere = true\n"
    found = _of(site("nodes = 1", profile, '[data.x]\nfrom = "corpus"\n')[2], "local-data")
    assert "(xfs)" in found.text
    travels = 'scheduler = "htcondor"\nnodes_elsewhere = true\n'
    told = site("nodes = 1", travels, '[data.x]\nfrom = "corpus"\n')[2]
    assert not [finding for finding in told if finding.rule == "local-data"]


def test_a_shared_data_set_that_its_group_cannot_read_is_told(site: Make, tmp_path: Path) -> None:
    place = _packed(tmp_path / "store/imagenet")
    profile = f'{SLURM}[datasets.imagenet]\npath = "{place}"\ngroup = "daemon"\n'
    place.chmod(0o750)
    assert "chgrp" in str(_of(site("nodes = 1", profile, '[data.x]\nfrom = "imagenet"\n')[2], "group-unreadable").next)
    place.chmod(0o755)
    findings = site("nodes = 1", profile, '[data.x]\nfrom = "imagenet"\n')[2]
    assert not [finding for finding in findings if finding.rule == "group-unreadable"]


def test_what_is_no_data_is_said_and_nothing_waits_for_it(make: Make, tmp_path: Path) -> None:
    (tmp_path / "job/empty").mkdir()
    os.mkfifo(tmp_path / "job/pipe")
    (tmp_path / "job/all.tar.gz").write_bytes(b"x")
    for source, rule, severity in (
        ("empty", "data-empty", "warn"),
        ("pipe", "data-unreadable", "error"),
        ("all.tar.gz", "data-archive", "info"),
    ):
        assert _of(make(HEAD + f'[data.x]\nfrom = "{source}"\n')[2], rule).severity == severity


def test_a_million_names_are_not_all_looked_at(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number}.jpg").write_bytes(b"12")
    seen = look(str(tmp_path), most=20)
    assert (seen.kind, seen.files, seen.whole, seen.mean_bytes) == ("files", 20, False, 2.0)


def test_an_object_store_that_cannot_be_reached_is_no_error(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    _, plan, findings = make(HEAD + '[data.x]\nfrom = "s3://bucket/corpus"\n')
    found = _of(findings, "data-unseen")
    assert (found.severity, found.line, len(findings)) == ("warn", 4, 1)
    assert "no connection could be made" in found.text
    assert plan.step.tasks.env == {"CORDEE_DATA_X": "s3://bucket/corpus"}
    assert plan.step.data[0].kind == "object store"


def _planned(place: Path, kind: str = "files") -> DataSet:
    return DataSet(name="x", given="x", place=str(place), variable="CORDEE_DATA_X", to="auto", kind=kind)


def test_a_container_sees_a_data_set_at_its_own_path_and_cannot_write_it(tmp_path: Path) -> None:
    place = _packed(tmp_path / "store/corpus")
    inside = Environment("e", image="/image.sqsh", root=ContainerRoot("squashfs", "/image.sqsh"))
    assert with_shown(inside, [shown_of(_planned(place))], tmp_path / "job").mounts == (
        ContainerMount(str(place), str(place), ("ro",)),
    )


@pytest.mark.parametrize("case", ["mounted", "meant otherwise", "in the job's folder", "no container", "a store"])
def test_no_mount_is_added_where_none_is_needed(tmp_path: Path, case: str) -> None:
    place = _packed(tmp_path / "store/corpus")
    mounts = {
        "mounted": (ContainerMount(str(tmp_path), str(tmp_path)),),
        "meant otherwise": (ContainerMount("/other", str(place)),),
    }.get(case, ())
    root = ContainerRoot("host") if case == "no container" else ContainerRoot("folder", "/image")
    job = tmp_path / "store" if case == "in the job's folder" else tmp_path / "job"
    data = _planned(place).model_copy(update={"place": "s3://b/x"} if case == "a store" else {})
    assert with_shown(Environment("e", mounts=mounts, root=root), [shown_of(data)], job).mounts == mounts


def test_shards_that_lie_elsewhere_are_mounted_with_their_index(tmp_path: Path) -> None:
    place = _packed(tmp_path / "store/corpus")
    (tmp_path / "indexes").mkdir()
    columns = {
        name: np.zeros((1, 1) if name in ("offset", "length", "crc32") else 1)
        for name in ("shard", "offset", "length", "crc32", "key_end")
    }
    write_index(
        tmp_path / "indexes/dataset.index",
        name="c",
        fields=["bin"],
        classes=[],
        shards=[],
        columns={**columns, "keys": np.zeros(0)},
        root=str(place),
    )
    inside = Environment("e", image="x", root=ContainerRoot("folder", "/image"))
    made = with_shown(inside, [shown_of(_planned(tmp_path / "indexes", "packed"))], tmp_path / "job").mounts
    assert [mount.source for mount in made] == [str(tmp_path / "indexes"), str(place)]
