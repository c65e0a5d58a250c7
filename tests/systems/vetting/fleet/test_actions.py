"""Site commands, tickets and the audit trail, with real processes and sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cordee.core.errors import CordeeError, DocumentError
from cordee.job.cluster import load_cluster
from cordee.job.fleet_site import SiteActions
from cordee.systems.vetting.fleet.actions import ActionError, make_actions
from cordee.systems.vetting.fleet.actions.command import SiteCommand
from cordee.systems.vetting.fleet.actions.ticket import TicketCommand, TicketWebhook
from cordee.systems.vetting.fleet.audit import Audit
from cordee.systems.vetting.fleet.proposals import Proposal

PROPOSAL = Proposal("reboot", "n1", "cordee: node_problem xid.79 job 1 2026-11-21", "xid.79", "hard", drain_id="d1")
ECHO = (sys.executable, "-c", "import sys; print(sys.argv[1:])", "{node}", "--gpu={gpu}", "{reason}", "{rule}")


def test_a_template_is_words_and_no_shell_sees_them():
    command = SiteCommand((*ECHO, "; rm -rf {node}"), 20)
    assert command.perform(PROPOSAL) == str(["n1", "--gpu=all", PROPOSAL.reason, "xid.79", "; rm -rf n1"])
    assert command.describe(PROPOSAL).endswith("'; rm -rf n1'")


@pytest.mark.parametrize("node", ["-rf", "../x", "a b", "", "$(x)", "n1\n"])
def test_a_name_that_is_none_reaches_no_command(node):
    with pytest.raises(ActionError, match="not the name of a node"):
        SiteCommand(ECHO, 20).perform(Proposal("reboot", node))


def test_a_command_that_fails_is_said_with_its_words():
    script = "import sys; print('no such node'); sys.exit(3)"
    with pytest.raises(ActionError, match="ended with 3: no such node"):
        SiteCommand((sys.executable, "-c", script, "{node}"), 20).perform(PROPOSAL)
    with pytest.raises(ActionError, match="cannot be started"):
        SiteCommand(("/none/such", "{node}"), 20).perform(PROPOSAL)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path):
    pids = tmp_path / "pids"
    script = f"sleep 600 & echo $! > {pids}; echo ready; wait"
    with pytest.raises(ActionError, match="was killed"):
        SiteCommand(("/bin/sh", "-c", script, "{node}"), 1).perform(PROPOSAL)
    child = int(pids.read_text())
    deadline = time.monotonic() + 30
    while alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_ticket_command_gets_the_document(tmp_path):
    target = tmp_path / "ticket.json"
    TicketCommand(["/bin/sh", "-c", f"cat > {target}"], 20).perform(PROPOSAL)
    document = json.loads(target.read_text())
    assert (document["schema"], document["key"], document["title"]) == ("cordee.ticket/1", "n1-d1", "n1: xid.79")


def test_the_words_of_a_ticket_command_are_filled_in(tmp_path):
    site = SiteActions(
        ticket=["/bin/sh", "-c", f'echo "$@" > {tmp_path}/words', "ticket", "{node}", "gpu {gpu}", "{rule}", "{reason}"]
    )
    ticket = make_actions(site)["ticket"]
    ticket.perform(replace(PROPOSAL, gpu="2"))
    assert (tmp_path / "words").read_text() == f"n1 gpu 2 xid.79 {PROPOSAL.reason}\n"
    assert "{" not in ticket.describe(PROPOSAL).partition("<<<")[0]


@pytest.mark.parametrize("code", [3, 4])
def test_a_vetting_that_finds_the_node_bad_has_not_failed(code):
    vet = make_actions(SiteActions(vet=["/bin/sh", "-c", f"echo gpu.ecc; exit {code}", "{node}"]))["vet"]
    assert vet.perform(PROPOSAL) == "vetted, and the node is not fit for work: gpu.ecc"


@pytest.mark.parametrize("code", [1, 2, 5, 255])
def test_a_vetting_that_did_not_work_has_failed(code):
    vet = make_actions(SiteActions(vet=["/bin/sh", "-c", f"exit {code}", "{node}"]))["vet"]
    with pytest.raises(ActionError, match=f"ended with {code}"):
        vet.perform(PROPOSAL)


class Hook(BaseHTTPRequestHandler):
    """Answers with the codes in `codes`, one after another."""

    codes: list[int]
    seen: list[tuple[str, dict[str, Any]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.headers["Idempotency-Key"], json.loads(body)))
        self.send_response(self.codes.pop(0))
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[tuple[str, type[Hook]]]:
    handler = type("TestHook", (Hook,), {"codes": [], "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/tickets", handler
    server.shutdown()
    server.server_close()


def test_a_webhook_is_tried_again_with_the_same_key(hook):
    url, handler = hook
    handler.codes = [503, 429, 201]
    assert TicketWebhook(url, pause_s=0.0).perform(PROPOSAL).startswith("201")
    assert {key for key, _ in handler.seen} == {"n1-d1"}
    assert len(handler.seen) == 3


@pytest.mark.parametrize(("codes", "later"), [([503] * 3, True), ([404], False), ([302], False)])
def test_a_webhook_that_does_not_take_it_is_said(hook, codes, later):
    url, handler = hook
    handler.codes = list(codes)
    with pytest.raises(ActionError) as caught:
        TicketWebhook(url, pause_s=0.0).perform(PROPOSAL)
    assert caught.value.later == later


def test_a_webhook_that_is_gone_is_said():
    with pytest.raises(ActionError, match="did not take it"):
        TicketWebhook("http://127.0.0.1:1/x", pause_s=0.0).perform(PROPOSAL)


def test_only_what_the_site_names_can_be_done():
    assert set(make_actions(SiteActions())) == {"drain", "resume"}
    site = SiteActions(reset=["r", "{node}", "{gpu}"], reboot="b {node}", ticket="t", vet="v {node}")
    assert set(make_actions(site)) == {"drain", "resume", "reset_gpu", "reboot", "ticket", "vet"}
    assert set(make_actions(SiteActions(ticket_url="https://x"))) == {"drain", "resume", "ticket"}


@pytest.mark.parametrize(("line", "words"), [('reset = ["r"]', "does not say which node"), ('reset = "r {nod}"', "{nod}"),
                                             ('ticket = ["t", "{nodes}"]', "{nodes}"), ('ticket = ["t", "{}"]', "{}"),
                                             ('explode = "x {node}"', "has no key explode")])  # fmt: skip
def test_a_wrong_template_is_refused_with_its_line(tmp_path, monkeypatch, line, words):
    (tmp_path / "alps.toml").write_text(f'name = "alps"\n[vetting.actions]\n{line}\n')
    monkeypatch.setenv("CORDEE_CLUSTERS_PATH", str(tmp_path))
    with pytest.raises(DocumentError) as caught:
        load_cluster("alps")
    assert words in str(caught.value)
    assert caught.value.line == 3


def test_the_trail_says_what_was_meant_and_what_became_of_it(tmp_path):
    audit = Audit(tmp_path / "a" / "actions.jsonl")
    first, second = audit.begin(PROPOSAL), audit.begin(PROPOSAL)
    audit.end(first, "done", "well")
    one, two = audit.deeds()
    assert (one.phase, one.said, one.reason, one.rule) == ("done", "well", PROPOSAL.reason, "xid.79")
    assert (two.id, two.phase) == (second.id, "open")
    assert all(entry["by"] and entry["host"] for entry in audit.entries())


def test_a_torn_trail_is_read_and_goes_on(tmp_path):
    audit = Audit(tmp_path / "actions.jsonl")
    audit.end(audit.begin(PROPOSAL), "done", "")
    with audit.path.open("ab") as file:
        file.write(b'{"schema": "cordee.actions/1", "id": "x", "pha')
    audit.begin(PROPOSAL)
    assert [deed.phase for deed in audit.deeds()] == ["done", "open"]


def test_a_trail_that_cannot_be_written_forbids_the_deed(tmp_path):
    (tmp_path / "actions.jsonl").mkdir()
    with pytest.raises(CordeeError, match="cannot be written"):
        Audit(tmp_path / "actions.jsonl").begin(PROPOSAL)


def test_a_trail_that_others_can_write_proves_nothing(tmp_path):
    audit = Audit(tmp_path / "actions.jsonl")
    audit.begin(PROPOSAL)
    audit.path.chmod(0o666)
    with pytest.raises(CordeeError, match="others can write"), audit.alone():
        pass
    assert len(audit.deeds()) == 1


def test_two_do_not_act_at_the_same_time(tmp_path):
    audit = Audit(tmp_path / "actions.jsonl")
    program = f"from cordee.systems.vetting.fleet.audit import Audit\nfrom pathlib import Path\nwith Audit(Path({str(audit.path)!r})).alone(): pass"
    with audit.alone():
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert f"process {os.getpid()}" in done.stderr
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
