"""A run's folder as it arrives in a job's scratch folder, and as it leaves it."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from cordee.backends.htcondor.node.ads import CODE, LAST_WORDS, LUGGAGE, OUTPUTS, CondorStart
from cordee.backends.htcondor.node.sandbox import AGAIN, EVICTED, KEPT, LINKS, Sandbox
from cordee.runs.folder import RunFolder

RUN = "t-20261128T120000Z-abcd"
HOME = "/home/ada/runs/" + RUN
JOB = "/home/ada/job"


def plan(**checkpoint: object) -> dict[str, object]:
    step = {
        "tasks": {
            "argv": ["python", f"{JOB}/train.py", f"--out={JOB}/out", f"--not={JOB}2/out", f"{JOB}"],
            "env": {"DATA": "/data/corpus/x", "OTHER": "/data/corpus2"},
            "path_prepend": ["/home/ada/venv/bin", "/usr/bin"],
        },
        "checkpoint": {"path": f"{HOME}/checkpoints", "grace_s": 120.0, "seen_as": None, **checkpoint},
        "data": [{"place": "/data/corpus"}, {"place": f"{JOB}/small"}, {"place": "s3://bucket/set"}],
    }
    return {"folder": HOME, "workdir": f"{HOME}/code", "job_folder": JOB, "steps": [step], "timeouts": {"kill_s": 10.0}}


def arrival(scratch: Path, document: dict[str, object], code: dict[str, str]) -> Sandbox:
    """Write what HTCondor brings, and return the sandbox of it."""
    root = scratch / RUN
    for name in ("submit", "journal", "checkpoints", "node.zip"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "node.zip" / "module.py").write_text("")
    (root / "plan.json").write_text(json.dumps(document))
    (root / "journal" / "client.jsonl").write_text("line\n")
    written = scratch / "code"
    written.mkdir(exist_ok=True)
    tarfile.open(root / "submit" / LUGGAGE, "w:gz").close()
    with tarfile.open(root / "submit" / CODE, "w:gz") as archive:
        for name, text in code.items():
            path = written / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
            archive.add(path, arcname=f"code/{name}")
        (written / "cordee.toml").write_text("")
        archive.add(written / "cordee.toml", arcname="documents/cordee.toml")
        (written / "link").symlink_to("train.py")
        archive.add(written / "link", arcname="code/link")
    for name in ("corpus", "small"):
        (scratch / name).mkdir(exist_ok=True)
    return Sandbox(scratch, RUN)


def no_fetch(path: str, target: Path) -> None:
    raise AssertionError(f"{path} was fetched")


def here(vacate_s: float | None = None) -> CondorStart:
    return CondorStart("12.0", 1, "node7", vacate_s)


def test_paths_lead_to_where_things_are_here(tmp_path):
    sandbox = arrival(tmp_path, plan(seen_as="ck"), {"train.py": "pass"})
    sandbox.arrive(here(), no_fetch)
    root, found = tmp_path / RUN, json.loads((tmp_path / RUN / "plan.json").read_text())
    step = found["steps"][0]
    assert (found["folder"], found["workdir"], found["job_folder"]) == (str(root), f"{root}/code", JOB)
    assert step["tasks"]["argv"] == [
        "python",
        f"{root}/code/train.py",
        f"--out={root}/code/out",
        f"--not={JOB}2/out",
        f"{root}/code",
    ]
    assert step["tasks"]["env"] == {"DATA": f"{tmp_path}/corpus/x", "OTHER": "/data/corpus2"}
    assert step["tasks"]["path_prepend"] == ["/usr/bin"]
    assert step["checkpoint"]["path"] == f"{root}/checkpoints"
    assert [data["place"] for data in step["data"]] == [f"{tmp_path}/corpus", f"{tmp_path}/small", "s3://bucket/set"]
    assert (root / "code" / "small").resolve() == tmp_path / "small"
    assert (root / "code" / "ck").resolve() == root / "checkpoints"
    assert os.access(root / "code" / "train.py", os.X_OK)


@pytest.mark.parametrize(("vacate_s", "grace_s"), [(None, 120.0), (600.0, 120.0), (10.0, 7.0), (2.0, 1.0)])
def test_no_save_takes_longer_than_the_machine_waits(tmp_path, vacate_s, grace_s):
    sandbox = arrival(tmp_path, plan(), {})
    sandbox.arrive(here(vacate_s), no_fetch)
    found = json.loads((tmp_path / RUN / "plan.json").read_text())
    assert found["steps"][0]["checkpoint"]["grace_s"] == grace_s


def test_earlier_starts_have_their_epochs(tmp_path):
    sandbox = arrival(tmp_path, plan(), {})
    for epoch in (1, 3):
        (sandbox.folder.journal / f"supervisor-{epoch}.jsonl").write_text("")
    sandbox.arrive(here(), no_fetch)
    owners = sorted((sandbox.folder.control / "epochs").glob("*/owner.json"))
    assert [path.parent.name for path in owners] == ["1", "3"]
    assert json.loads(owners[0].read_text())["job"] is None


def test_what_was_made_goes_home_and_what_came_along_does_not(tmp_path):
    sandbox = arrival(tmp_path, plan(seen_as="ck"), {"train.py": "pass", "pkg/notes.txt": "old"})
    sandbox.arrive(here(), no_fetch)
    folder = sandbox.folder
    (folder.code / "result.csv").write_text("1")
    (folder.code / "pkg" / "notes.txt").write_text("new words")
    (folder.checkpoints / "step-1").mkdir()
    (folder.checkpoints / "step-1" / "w").write_text("w")
    (folder.checkpoints / "latest").symlink_to(folder.checkpoints / "step-1")
    (folder.checkpoints / "elsewhere").symlink_to("/etc/hostname")
    os.mkfifo(folder.code / "pipe")
    (folder.journal / "supervisor-1.jsonl").write_text("x")
    (folder.control / "supervisor.log").write_text("said")
    (folder.control / "rendezvous.json").write_text("{}")
    sandbox.leave(here(), EVICTED)
    coming = [folder.root / name for name in (*OUTPUTS, "journal")]
    left = {str(path.relative_to(folder.root)) for top in coming for path in top.rglob("*") if not path.is_dir()}
    assert left == {
        "code/result.csv",
        "code/pkg/notes.txt",
        "checkpoints/step-1/w",
        f"checkpoints/{LINKS}",
        f"checkpoints/{KEPT}000000012-000001.tar",
        "journal/supervisor-1.jsonl",
        "control/supervisor.log",
    }
    assert not any(path.is_symlink() for path in folder.root.rglob("*"))


def test_the_next_start_has_what_an_eviction_kept_links_too(tmp_path):
    first = arrival(tmp_path / "a", plan(), {"train.py": "pass", "notes.txt": "old"})
    first.arrive(here(), no_fetch)
    (first.folder.code / "notes.txt").write_text("changed")
    (first.folder.checkpoints / "step-1").mkdir()
    (first.folder.checkpoints / "latest").symlink_to(first.folder.checkpoints / "step-1")
    first.leave(here(), EVICTED)
    (tmp_path / "b").mkdir()
    first.folder.root.rename(tmp_path / "b" / RUN)  # as HTCondor brings it back
    second = arrival(tmp_path / "b", plan(), {"train.py": "pass", "notes.txt": "old"})
    second.arrive(here(), no_fetch)
    assert (second.folder.code / "notes.txt").read_text() == "changed"
    assert (second.folder.code / "train.py").read_text() == "pass"
    assert (second.folder.checkpoints / "latest").resolve() == second.folder.checkpoints / "step-1"
    second.leave(here(), EVICTED)
    assert (second.folder.code / "notes.txt").is_file()  # it is not at home yet


def test_what_a_start_that_ends_by_itself_has_changed_is_there_in_the_next(tmp_path):
    first = arrival(tmp_path / "a", plan(), {"train.py": "pass"})
    (first.folder.checkpoints / "last.pt").write_text("old")
    (first.folder.checkpoints / "step-1").write_text("stays")
    first.arrive(here(), no_fetch)
    (first.folder.code / "table.csv").write_text("1\n")
    (first.folder.checkpoints / "last.pt").write_text("newer")
    first.leave(here(), AGAIN)
    second = arrival(tmp_path / "b", plan(), {"train.py": "pass"})
    kept = f"{KEPT}000000012-000001.tar"
    (second.folder.checkpoints / kept).write_bytes((first.folder.checkpoints / kept).read_bytes())
    (second.folder.checkpoints / "last.pt").write_text("old")  # an eviction before had kept it
    second.arrive(here(), no_fetch)
    assert (second.folder.code / "table.csv").read_text() == "1\n"
    assert (second.folder.checkpoints / "last.pt").read_text() == "newer"
    assert [path.name for path in second.folder.checkpoints.iterdir()] == ["last.pt"]


def test_a_save_that_is_written_over_is_the_newest_that_came_home(tmp_path):
    sandbox = arrival(tmp_path, plan(), {"train.py": "pass"})
    saves = sandbox.folder.checkpoints
    (saves / "last.pt").write_text("kept by an eviction")
    with tarfile.open(saves / f"{KEPT}000000012-000001.tar", "w"):
        pass
    (saves / ".sent-000000012-000002").write_text("last.pt")
    (saves / ".sent-000000011-000009").write_text("last.pt")  # of an earlier job

    def fetch(path: str, target: Path) -> None:
        assert path == f"{RUN}/checkpoints/last.pt"
        target.write_text("newer")

    sandbox.arrive(CondorStart("12.0", 3, "node7"), fetch)
    assert (saves / "last.pt").read_text() == "newer"
    assert [path.name for path in saves.iterdir()] == ["last.pt"]


def test_the_end_of_a_run_comes_home_after_all_else(tmp_path):
    sandbox = arrival(tmp_path, plan(), {})
    sandbox.arrive(here(), no_fetch)
    path = sandbox.folder.journal / "supervisor-2.jsonl"
    path.write_text('{"event":"progress"}\n{"event":"ended","state":"finished"}\n{"event":"late"}\n')
    sandbox.leave(here(), None)
    assert path.read_text() == '{"event":"progress"}\n'
    assert (tmp_path / LAST_WORDS).read_text() == '{"event":"ended","state":"finished"}\n{"event":"late"}\n'


def test_what_a_script_has_closed_comes_home(tmp_path):
    sandbox = arrival(tmp_path, plan(), {"train.py": "pass"})
    sandbox.arrive(here(), no_fetch)
    closed = sandbox.folder.code / "closed"
    (closed / "below").mkdir(parents=True)
    (closed / "link").symlink_to("below")
    (closed / "secret").write_text("s")
    (closed / "secret").chmod(0)
    closed.chmod(0o555)
    (sandbox.folder.code / "link").unlink()
    (sandbox.folder.code / "link").write_text("a file now")
    sandbox.leave(here(), EVICTED)
    assert (closed / "secret").stat().st_mode & 0o400
    assert not (closed / "link").is_symlink()
    assert (sandbox.folder.code / "link").read_text() == "a file now"


def test_the_end_that_a_start_before_this_one_wrote_is_not_written_over_at_home(tmp_path):
    """Its results did not come home, so that the run was started once more."""
    sandbox = arrival(tmp_path, plan(), {})
    earlier = sandbox.folder.journal / "end-12.jsonl"
    earlier.write_text("the end")
    sandbox.arrive(CondorStart("12.0", 1, "node7"), no_fetch)
    assert not earlier.exists()
    assert [path.read_text() for path in sandbox.folder.journal.glob("end-*.jsonl")] == ["the end"]


def test_an_eviction_after_that_has_the_last_word(tmp_path):
    sandbox = arrival(tmp_path, plan(), {"train.py": "pass"})
    (sandbox.folder.code).mkdir(exist_ok=True)
    (sandbox.folder.code / "table.csv").write_text("of the eviction")
    (tmp_path / "old.csv").write_text("of the start before")
    for start, names in ((1, ["old.csv"]), (2, [])):
        with tarfile.open(sandbox.folder.checkpoints / f"{KEPT}000000012-{start:06d}.tar", "w") as archive:
            for name in names:
                archive.add(tmp_path / name, arcname="code/table.csv")
    sandbox.arrive(here(), no_fetch)
    assert (sandbox.folder.code / "table.csv").read_text() == "of the eviction"


def test_code_cannot_be_unpacked_outside(tmp_path):
    sandbox = arrival(tmp_path, plan(), {})
    with tarfile.open(sandbox.folder.submit / LUGGAGE, "w:gz") as archive:
        (tmp_path / "x").write_text("x")
        archive.add(tmp_path / "x", arcname="../../evil")
    sandbox.arrive(here(), no_fetch)
    assert not (tmp_path / "evil").exists()


def test_a_start_knows_itself_by_the_ads(tmp_path, monkeypatch):
    (tmp_path / "job").write_text("ClusterId = 12\nProcId = 3\nNumShadowStarts = 2\nJobMaxVacateTime = 150\n")
    (tmp_path / "machine").write_text('Name = "slot1_1@gpu 7.example.org"\nMachineMaxVacateTime = 10 * 60\n')
    monkeypatch.setenv("_CONDOR_JOB_AD", str(tmp_path / "job"))
    monkeypatch.setenv("_CONDOR_MACHINE_AD", str(tmp_path / "machine"))
    assert CondorStart.here() == CondorStart("12.3", 1, "gpu-7.example.org", 150.0)
    monkeypatch.delenv("_CONDOR_JOB_AD")
    assert CondorStart.here() is None


@pytest.mark.parametrize(
    ("ad", "lost_at"),
    [
        ("JobLastStartDate = 500\nJobDisconnectedDate = 531\nLastVacateTime = 551\n", 531.0),  # a machine that was lost
        (
            "JobLastStartDate = 500\nJobDisconnectedDate = 431\nLastVacateTime = 551\n",
            551.0,
        ),  # killed after an earlier loss
        ("JobLastStartDate = 500\nLastVacateTime = 451\n", None),
    ],
)
def test_a_start_knows_when_the_one_before_it_was_lost(tmp_path, monkeypatch, ad, lost_at):
    (tmp_path / "job").write_text(f"ClusterId = 12\nProcId = 3\nNumShadowStarts = 3\n{ad}")
    monkeypatch.setenv("_CONDOR_JOB_AD", str(tmp_path / "job"))
    start = CondorStart.here()
    assert start is not None
    assert start.lost_at == lost_at


def test_a_folder_is_private_again_wherever_it_came_through(tmp_path):
    sandbox = arrival(tmp_path, plan(), {})
    os.chmod(sandbox.folder.root, 0o755)
    sandbox.arrive(here(), no_fetch)
    assert os.stat(RunFolder(sandbox.folder.root).requests).st_mode & 0o777 == 0o700
    assert os.stat(sandbox.folder.root).st_mode & 0o777 == 0o700
