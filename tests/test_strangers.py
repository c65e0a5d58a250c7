"""A system of another package, found by its entry point: no line of the platform knows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from cordee.core import registry
from cordee.core.errors import CordeeError
from cordee.job.submit import submitter
from cordee.runs.folder import RunFolder
from support.servers.browsing import WatchedPage, chromium
from support.servers.serving import ServedRuns

WINDOW = Path(__file__).parent / "strangers" / "window"
DOCUMENT = 'name = "t"\nrun = "python train.py"\n[need]\ntime = "2h"\n'
TABLE = '[window]\nopen = "1h"\n'
SCRIPT = "import os\nprint(os.environ['WINDOW'], 'by', os.environ['WINDOW_FROM'])\n"


class Person:
    """Somebody with a job in a folder, and with the package installed where `packages` says so."""

    def __init__(self, folder: Path, packages: Path | None = WINDOW) -> None:
        self.folder = folder
        self._env = {**os.environ, **({"PYTHONPATH": str(packages)} if packages else {})}

    def write(self, document: str) -> None:
        (self.folder / "cordee.toml").write_text(document)
        (self.folder / "train.py").write_text(SCRIPT)

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cordee.faces.cli", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self._env, capture_output=True, text=True, check=False)

    def json(self, *arguments: str) -> Any:
        done = self(*arguments, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    found = Person(tmp_path)
    found.write(DOCUMENT + TABLE)
    yield found
    for folder in (tmp_path / "runs").glob("*/"):
        submitter("local").cancel(RunFolder(folder))


def test_its_table_is_in_the_plan_and_its_finding_among_the_others(person: Person):
    checked = person.json("check")
    (found,) = [finding for finding in checked["findings"] if finding["rule"] == "window-too-short"]
    assert found["text"] == "the job asks for 2 h, and the window is open for 1 h"
    assert (found["line"], found["severity"]) == (6, "warn")
    assert checked["plan"]["steps"][0]["systems"]["window"] == {"open_s": 3600.0}
    assert checked["plan"]["node_parts"]["companion/window"] == "cordee_window.node.told:Told"


def test_a_fault_in_its_table_is_told_with_its_line(person: Person):
    person.write(DOCUMENT + '[window]\nopen = "1h"\nshut = "2h"\n')
    (found,) = person.json("check")["findings"]
    assert (found["text"], found["line"], found["allowed"]) == ("[window] has no key shut", 7, ["open"])


def test_its_table_may_stand_below_a_cluster(person: Person):
    person.write(DOCUMENT + '[on.local.window]\nopen = "3h"\n')
    assert person.json("check")["plan"]["steps"][0]["systems"]["window"] == {"open_s": 10800.0}


def test_a_job_without_its_table_does_not_know_it(person: Person):
    person.write(DOCUMENT)
    plan = person.json("check")["plan"]
    assert "window" not in plan["steps"][0]["systems"]
    assert "companion/window" not in plan["node_parts"]


def test_without_the_package_its_table_and_its_command_are_unknown(person: Person, tmp_path: Path):
    alone = Person(tmp_path, packages=None)
    (found,) = alone.json("check")["findings"]
    assert found["text"] == "the document has no key window"
    assert "there is no command 'window'" in alone("window").stderr


def test_its_command_is_one_of_cordee(person: Person):
    done = person("window")
    assert (done.returncode, done.stdout) == (0, "open for 3600 s\n"), done.stderr


def test_packages_are_not_looked_at_for_what_is_known():
    program = (
        "import sys, importlib.metadata\n"
        "real = importlib.metadata.entry_points\n"
        "def asked(**group):\n"
        "    if group == {'group': 'cordee.systems'}: raise SystemExit('packages were looked at')\n"
        "    return real(**group)\n"
        "importlib.metadata.entry_points = asked\n"
        "from cordee.faces.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    example = Path(__file__).parents[1] / "examples" / "plain-resume"
    for arguments in (["--help"], ["check", str(example)]):
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
        assert "packages were looked at" not in done.stderr
        assert done.returncode == 0, done.stderr
    done = subprocess.run([sys.executable, "-c", program, "nothing"], capture_output=True, text=True, check=False)
    assert "packages were looked at" in done.stderr


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_its_part_of_the_nodes_travels_with_the_run_and_its_page_shows_what_was_planned(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ran = person("run")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (folder,) = (tmp_path / "runs").glob("[!.]*")
    printed = person("logs", folder.name).stdout
    assert "rank 0 on " in printed
    assert "0 to 0" in person("logs", folder.name, "--rank", "7").stderr
    assert f": 3600 s by {folder}/node.zip/cordee_window/node/told.py" in printed

    shown = person.json("show", folder.name)
    assert (shown["window"], shown["data"]) == ({"open_s": 3600.0}, [])
    assert "window      open for 3600 s" in person("show", folder.name).stdout.splitlines()

    monkeypatch.syspath_prepend(str(WINDOW))
    registry.outsiders.cache_clear()
    try:
        with ServedRuns(tmp_path / "runs") as server, chromium() as browser:
            tab = WatchedPage(browser, server.url, viewport={"width": 1200, "height": 800})
            page = tab.open(f"#/run/{folder.name}")
            page.get_by_role("link", name="Window").click()
            expect(page.locator("#window")).to_have_text("open for 3600 s")
        from cordee_window.routes import Visits

        assert Visits.closed == [1]
    finally:
        registry.outsiders.cache_clear()


@pytest.mark.usefixtures("real")
def test_its_section_is_in_the_report_of_a_run_in_every_form(person: Person, tmp_path: Path):
    ran = person("run")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (folder,) = (RunFolder(path) for path in (tmp_path / "runs").glob("[!.]*"))
    page = (folder.report / "index.html").read_text()
    assert '<p id="the-window">&lt;open&gt; for 3600 s</p>' in page
    assert page.index("#the-window { font-weight") < page.index("</style>")
    assert page.index('the-window">') < page.index("<h2>Nodes</h2>")
    assert "The window\n  <open> for 3600 s\n" in (folder.report / "report.txt").read_text()
    document = json.loads((folder.report / "report.json").read_text())
    assert (document["window_use"], document["window"]) == ({"open_s": 3600.0}, {"open_s": 3600.0})
    assert "  window       open for 3600 s" in (folder.report / "report.txt").read_text()


@pytest.mark.usefixtures("real")
def test_a_run_of_another_job_has_nothing_of_it_but_an_empty_key(person: Person, tmp_path: Path):
    person.write(DOCUMENT)
    person("run")
    (folder,) = (RunFolder(path) for path in (tmp_path / "runs").glob("[!.]*"))
    assert "the-window" not in (folder.report / "index.html").read_text()
    assert json.loads((folder.report / "report.json").read_text())["window_use"] is None


@pytest.mark.usefixtures("real")
def test_a_section_that_cannot_be_made_is_missing_and_keeps_no_other_from_the_report(person: Person, tmp_path: Path):
    shutil.copytree(WINDOW, tmp_path / "packages")
    report = tmp_path / "packages/cordee_window/report.py"
    report.write_text(report.read_text().replace("        self.open_s = ", "        self.open_s = int('no') or "))
    told = Person(tmp_path, tmp_path / "packages")
    assert told("run").returncode == 0
    (folder,) = (RunFolder(path) for path in (tmp_path / "runs").glob("[!.]*"))
    document = json.loads((folder.report / "report.json").read_text())
    assert document["window_use"] is None
    assert document["storage"] is not None
    assert any(text.startswith("window_use: invalid literal") for text in document["missing"])


@pytest.mark.usefixtures("real")
def test_a_report_is_rendered_without_a_package_that_cannot_be_loaded_and_names_it(person: Person, tmp_path: Path):
    person("run")
    (folder,) = (RunFolder(path) for path in (tmp_path / "runs").glob("[!.]*"))
    shutil.copytree(WINDOW, tmp_path / "packages")
    (tmp_path / "packages/cordee_window/report.py").write_text("import nowhere")
    document = Person(tmp_path, tmp_path / "packages").json("report", folder.id)
    assert any(text.startswith("what the system window says: a part cannot be loaded") for text in document["missing"])
    assert (document["window"], document["storage"] is None) == ({"open_s": 3600.0}, False)

    (tmp_path / "packages/cordee_window/system.py").write_text("import nowhere")
    broken = Person(tmp_path, tmp_path / "packages")
    document = broken.json("report", folder.id)
    assert any(text.startswith("what systems of other packages say: a part cannot") for text in document["missing"])
    assert "window" not in document
    assert broken.json("show", folder.id)["data"] == []


@pytest.mark.usefixtures("real")
def test_what_it_leaves_is_in_the_catalogue_of_data_sets(tmp_path: Path):
    program = (
        "from cordee.faces.report.datasets import datasets; print([one for one in datasets() if one.name == 'window'])"
    )
    env = {**os.environ, "PYTHONPATH": str(WINDOW)}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)
    assert "ReportDataSet(name='window'" in done.stdout, done.stderr


def test_a_stranger_imports_no_face():
    sources = [path.read_text() for path in (WINDOW / "cordee_window").rglob("*.py")]
    assert sources
    assert not [source for source in sources if "cordee.faces" in source]


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("data = cordee_window.system:SYSTEM", "two systems have one name"),
        ("door = cordee_window.system:SYSTEM", "is not the system of that name"),
        ("window = cordee_window.nowhere:SYSTEM", "cannot be loaded"),
    ],
)
def test_an_entry_point_that_is_no_system_is_refused_by_name(person: Person, tmp_path: Path, entry: str, words: str):
    shutil.copytree(WINDOW, tmp_path / "packages")
    (tmp_path / "packages/cordee_window-1.0.dist-info/entry_points.txt").write_text(f"[cordee.systems]\n{entry}\n")
    told = Person(tmp_path, tmp_path / "packages").json("check")["error"]
    assert words in told["text"]
    assert told["given"] == entry.split(" = ")[1]


def test_a_part_that_is_not_there_is_named():
    from cordee.core.parts import load

    with pytest.raises(CordeeError, match="cannot be loaded") as told:
        load("cordee.nowhere:thing")
    assert told.value.given == "cordee.nowhere:thing"
