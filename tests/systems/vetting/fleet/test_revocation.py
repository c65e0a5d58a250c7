"""Cutting off is done by the site's command alone, written down before and after, and can be taken back."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from cordee.core.errors import UsageError
from cordee.faces.cli import cordee as main
from cordee.job.fleet_site import SiteActions
from cordee.systems.vetting.fleet.audit import Audit
from cordee.systems.vetting.fleet.revocation import revoke


@pytest.fixture
def site(tmp_path):
    script = tmp_path / "guard"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ntest "$2" != n9\n')
    script.chmod(0o755)
    words = {verb: (str(script), verb, "{node}", "{job}") for verb in ("revoke", "restore")}
    return SiteActions(**words)


def test_a_job_and_a_node_are_cut_off_and_let_go_with_a_trail(tmp_path, site):
    audit = Audit(tmp_path / "actions.jsonl")
    with audit.alone():  # as a service that acts holds it
        done = revoke("revoke", ["n1", "n2"], "4711", "it sends", site, audit, yes=True)
    revoke("revoke", ["n3"], "", "it sends", site, audit, yes=True)
    revoke("restore", ["n1"], "4711", "a mistake", site, audit, yes=True)
    assert [one.phase for one in done] == ["done", "done"]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["revoke n1 4711", "revoke n2 4711", "revoke n3 node", "restore n1 4711"]
    kept = [(deed.action, deed.node, deed.job, deed.phase, deed.reason) for deed in audit.deeds()]
    assert kept == [
        ("revoke", "n1", "4711", "done", "it sends"),
        ("revoke", "n2", "4711", "done", "it sends"),
        ("revoke", "n3", "", "done", "it sends"),
        ("restore", "n1", "4711", "done", "a mistake"),
    ]


def test_one_node_that_fails_keeps_no_other_from_it(tmp_path, site):
    audit = Audit(tmp_path / "actions.jsonl")
    done = revoke("revoke", ["n9", "n1"], "7", "x", site, audit, yes=True)
    assert [one.phase for one in done] == ["failed", "done"]
    assert [deed.phase for deed in audit.deeds()] == ["failed", "done"]


def test_without_yes_nothing_is_done(tmp_path, site):
    (planned,) = revoke("revoke", ["n1"], "7", "x", site, Audit(tmp_path / "actions.jsonl"), yes=False)
    assert planned.phase == "planned"
    assert planned.how.endswith("revoke n1 7")
    assert not (tmp_path / "asked").exists()
    assert not (tmp_path / "actions.jsonl").exists()


@pytest.mark.parametrize(
    ("node", "job"), [("n1; reboot", "7"), ("-oProxyCommand=x", "7"), ("n1", "7; reboot"), ("n1", "$(x)")]
)
def test_what_is_no_name_reaches_no_command(tmp_path, site, node, job):
    with pytest.raises(UsageError):
        revoke("revoke", [node], job, "x", site, Audit(tmp_path / "actions.jsonl"), yes=True)
    assert not (tmp_path / "asked").exists()


def test_the_command_does_it_and_says_what_a_site_lacks(tmp_path, site, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    profiles = tmp_path / "config" / "cordee" / "clusters"
    profiles.mkdir(parents=True)
    script = json.dumps([str(tmp_path / "guard"), "revoke", "{node}", "{job}"])
    (profiles / "peak.toml").write_text(f'scheduler = "slurm"\n[vetting.actions]\nrevoke = {script}\n')
    words = ["nodes", "act", "revoke", "n[1-2]", "--job", "7", "--reason", "x", "--on", "peak"]
    words += ["--audit", str(tmp_path / "a.jsonl"), "--json"]
    done = CliRunner().invoke(main, [*words, "--yes"])
    assert done.exit_code == 0, done.output
    assert [one["phase"] for one in json.loads(done.output)["actions"]] == ["done", "done"]
    lacking = CliRunner().invoke(main, ["restore" if word == "revoke" else word for word in words])
    assert isinstance(lacking.exception, UsageError)
    assert "no command to restore" in lacking.exception.text
