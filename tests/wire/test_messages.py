"""The messages between supervisor, agents and clients: what is on the wire, and what is refused."""

from __future__ import annotations

import json
import random
import string
from contextlib import suppress

import pytest

from cordee.core.errors import WireError
from cordee.systems.vetting.node.standalone.messages import FROM_CONDUCTOR, FROM_TASK, EndVetting, Leads, Ping, Pong
from cordee.wire import codec, messages
from cordee.wire.messages import FROM_AGENT, FROM_CLIENT, FROM_SUPERVISOR, TO_CLIENT, decode, encode

SLOTS = messages.Slots(
    (messages.CoreSlots(0, 4, "0-7"), messages.CoreSlots(None, 1, "8")),
    (
        messages.GpuSlot("GPU-a", "0-7", 80, ()),
        messages.GpuSlot("GPU-b", "", None, (messages.InstanceSlot("MIG-a", 10), messages.InstanceSlot("MIG-b", None))),
    ),
    1024,
)
# What is on the wire, as JSON has it, one of each kind and of each of its shapes. Another version of either end reads it.
GOLDEN = {
    "to an agent": (
        FROM_SUPERVISOR,
        [
            (
                messages.Welcome(3, 1, "3.7", 12.5),
                {"t": "welcome", "epoch": 3, "segment": 1, "session": "3.7", "of": 12.5},
            ),
            (messages.Lease(7.25), {"t": "lease", "of": 7.25}),
            (messages.Clear(), {"t": "clear"}),
            (messages.Bye(), {"t": "bye"}),
            (messages.Bye(another=True), {"t": "bye", "another": True}),
            (messages.Ack(12), {"t": "ack", "sequence": 12}),
            (messages.Container("1-2", 300.0), {"t": "container", "id": "1-2", "deadline_s": 300.0}),
            (messages.Setup("1-3", 600.0), {"t": "setup", "id": "1-3", "deadline_s": 600.0}),
            (
                messages.Checks("checks-a-1", {"checks": [{"check": "disk"}], "deadline_s": 5}, 10),
                {
                    "t": "checks",
                    "id": "checks-a-1",
                    "request": {"checks": [{"check": "disk"}], "deadline_s": 5},
                    "deadline_s": 10,
                },
            ),
            (messages.Port("a 1", "10.0.0.1", 2), {"t": "port", "id": "a 1", "host": "10.0.0.1", "count": 2}),
            (messages.Clock("clock-1"), {"t": "clock", "id": "clock-1"}),
            (messages.StageOrder("data", {"do": "end"}), {"t": "stage", "system": "data", "request": {"do": "end"}}),
            (
                messages.Ranks(2, "fork", 4, "n1", 1, "10.0.0.1", 20001, 20002, None, 3),
                {
                    "t": "ranks",
                    "attempt": 2,
                    "launch": "fork",
                    "ranks_per_node": 4,
                    "node": "n1",
                    "node_rank": 1,
                    "master_address": "10.0.0.1",
                    "master_port": 20001,
                    "coordinator_port": 20002,
                    "resume_from": None,
                    "epoch": 3,
                },
            ),
            (messages.Stop("ranks-2", 5.0), {"t": "stop", "group": "ranks-2", "grace_s": 5.0}),
            (messages.Signal("ranks-2", "USR1"), {"t": "signal", "group": "ranks-2", "signal": "USR1"}),
            (messages.StopRequest(2), {"t": "stop_request", "attempt": 2}),
            (messages.StopAt(2, 100), {"t": "stop_at", "attempt": 2, "step": 100}),
            (
                messages.Gather("hang-1", 2, 15.0),
                {"t": "gather", "id": "hang-1", "attempt": 2, "deadline_s": 15.0},
            ),
            (messages.Observe(2, True), {"t": "observe", "attempt": 2, "wanted": True}),
            (
                messages.ProfileRanks("profile-1", 2, 300.0, (0, 7), "torch", 1.7e9, 5, 0.0, 1),
                {
                    "t": "profile",
                    "id": "profile-1",
                    "attempt": 2,
                    "deadline_s": 300.0,
                    "wanted": [0, 7],
                    "tool": "torch",
                    "begin_at": 1.7e9,
                    "steps": 5,
                    "seconds": 0.0,
                    "extras": 1,
                },
            ),
            (messages.PoolTasks(2), {"t": "pool_tasks", "attempt": 2}),
            (messages.PoolTasks(2, True), {"t": "pool_tasks", "attempt": 2, "last": True}),
            (
                messages.Shell("shell-1", ("ls", "-l"), None, 24, 80),
                {"t": "shell", "id": "shell-1", "argv": ["ls", "-l"], "term": None, "rows": 24, "columns": 80},
            ),
            (messages.ShellInput("shell-1"), {"t": "shell_input", "id": "shell-1"}),
            (messages.ShellInput("shell-1", True), {"t": "shell_input", "id": "shell-1", "closed": True}),
            (
                messages.ShellResize(30, 100, "shell-1"),
                {"t": "shell_resize", "id": "shell-1", "rows": 30, "columns": 100},
            ),
        ],
    ),
    "from an agent": (
        FROM_AGENT,
        [
            (
                messages.Hello(2, 4711, 99, "n1", "3.11.7", SLOTS, 3, 2, (4, 5), "3.7", 17, 33.5),
                {
                    "t": "hello",
                    "incarnation": 2,
                    "pid": 4711,
                    "start_ticks": 99,
                    "host": "n1",
                    "python": "3.11.7",
                    "slots": [
                        [[0, 4, "0-7"], [None, 1, "8"]],
                        [["GPU-a", "0-7", 80, []], ["GPU-b", "", None, [["MIG-a", 10], ["MIG-b", None]]]],
                        1024,
                    ],
                    "epoch": 3,
                    "attempt": 2,
                    "living": [4, 5],
                    "session": "3.7",
                    "seen": 17,
                    "at": 33.5,
                },
            ),
            (messages.Alive(), {"t": "alive"}),
            (messages.Cleared(), {"t": "cleared"}),
            (messages.Cleared(True), {"t": "cleared", "kept": True}),
            (
                messages.ContainerDone("1-2", "fail", "no engine", 0.5),
                {"t": "container_done", "id": "1-2", "status": "fail", "text": "no engine", "seconds": 0.5},
            ),
            (messages.ContainerLost("ended"), {"t": "container_lost", "text": "ended"}),
            (
                messages.SetupDone("1-3", "pass", "", 1.5),
                {"t": "setup_done", "id": "1-3", "status": "pass", "text": "", "seconds": 1.5},
            ),
            (messages.ChecksOutput("checks-a-1"), {"t": "checks_output", "id": "checks-a-1"}),
            (
                messages.ChecksDone("checks-a-1", None, "SIGKILL", "deadline", "too late"),
                {
                    "t": "checks_done",
                    "id": "checks-a-1",
                    "code": None,
                    "signal": "SIGKILL",
                    "reason": "deadline",
                    "text": "too late",
                },
            ),
            (
                messages.FreePorts("a 1", (20001, 20002), ""),
                {"t": "port", "id": "a 1", "ports": [20001, 20002], "text": ""},
            ),
            (messages.Time("clock-1", 1.5e9), {"t": "clock", "id": "clock-1", "unix_s": 1.5e9}),
            (messages.Staging("data", {"port": 20001}), {"t": "staging", "system": "data", "said": {"port": 20001}}),
            (
                messages.RanksStarted(2, (messages.StartedRank(4, 4712), messages.StartedRank(5, 4713))),
                {"t": "ranks_started", "attempt": 2, "started": [[4, 4712], [5, 4713]]},
            ),
            (
                messages.RanksEnded(2, (messages.EndedRank(4, 1, None, "exited", 3.25, "ValueError: no"),)),
                {"t": "ranks_ended", "attempt": 2, "ended": [[4, 1, None, "exited", 3.25, "ValueError: no"]]},
            ),
            (
                messages.StopAnswers(2, (messages.StopAnswer(4, 100), messages.StopAnswer(5, None))),
                {"t": "stop_answers", "attempt": 2, "answers": [[4, 100], [5, None]]},
            ),
            (messages.Telemetry(None, ()), {"t": "telemetry", "sequence": None, "steps": []}),
            (
                messages.Telemetry(
                    sequence=6,
                    steps=(messages.RankStep(4, 100),),
                    total=1000,
                    now=1.5e9,
                    capped_values=(messages.CappedValues(4, 7),),
                    data=(
                        messages.DataRead(2, 4, "train", 1, 1000, 0, 40, 40, 0, (messages.DataSave(40, given=40),)),
                        messages.DataRead(2, 5, "train", 1, saves=(messages.DataSave(40, step=10),)),
                    ),
                    found=(messages.RankFinding("checkpoint-damaged", "step-10", "look"),),
                    unread_bytes=0,
                    dropped_log_bytes=3,
                    queued_log_bytes=0,
                    log=messages.LogFile("n1-1.log", 4096),
                    lost_samples=2,
                    troubles=("no room",),
                    stands=(
                        messages.RankStand(4, 65.5, 60.0, 1.25, True, "silent"),
                        messages.RankStand(5, 7, 7, None, False, ""),
                    ),
                    findings=(messages.NodeFinding("hardware-io error sda", 101, False, {"text": "I/O error"}),),
                    digests=(
                        messages.RankDigest(
                            *(4, 10.0, 12),
                            *(messages.KindTimes(7.5, 75, 0.8, 4.25), messages.KindTimes(0.5, 5, 0.1, 0.05)),
                            *(messages.KindTimes(1.5, 15, 0.3, 0.25), messages.KindTimes(0, 0, 0, 0)),
                            *(0.25, 0.5, 3, 0.125),
                        ),
                    ),
                    links=(messages.SlowLink("10.0.0.2", 65536, 7),),
                ),
                {
                    "t": "telemetry",
                    "sequence": 6,
                    "steps": [[4, 100]],
                    "total": 1000,
                    "now": 1.5e9,
                    "capped_values": [[4, 7]],
                    "data": [
                        {
                            "attempt": 2,
                            "rank": 4,
                            "set": "train",
                            "turn": 1,
                            "size": 1000,
                            "begin": 0,
                            "position": 40,
                            "given": 40,
                            "dropped": 0,
                            "saves": [{"position": 40, "given": 40}],
                        },
                        {"attempt": 2, "rank": 5, "set": "train", "turn": 1, "saves": [{"position": 40, "step": 10}]},
                    ],
                    "found": [["checkpoint-damaged", "step-10", "look"]],
                    "unread_bytes": 0,
                    "dropped_log_bytes": 3,
                    "queued_log_bytes": 0,
                    "log": ["n1-1.log", 4096],
                    "lost_samples": 2,
                    "troubles": ["no room"],
                    "stands": [[4, 65.5, 60.0, 1.25, True, "silent"], [5, 7, 7, None, False, ""]],
                    "findings": [["hardware-io error sda", 101, False, {"text": "I/O error"}]],
                    "digests": [
                        [
                            *(4, 10.0, 12),
                            *([7.5, 75, 0.8, 4.25], [0.5, 5, 0.1, 0.05], [1.5, 15, 0.3, 0.25], [0, 0, 0, 0]),
                            *(0.25, 0.5, 3, 0.125),
                        ]
                    ],
                    "links": [["10.0.0.2", 65536, 7]],
                },
            ),
            (
                messages.Gathered("hang-1", "rank-4.json", True),
                {"t": "gathered", "id": "hang-1", "name": "rank-4.json", "last": True},
            ),
            (messages.Gathered("hang-1", text="no stacks"), {"t": "gathered", "id": "hang-1", "text": "no stacks"}),
            (messages.PoolNews(3), {"t": "pool_news", "attempt": 3}),
            (messages.ShellOutput("shell-1"), {"t": "shell_output", "id": "shell-1"}),
            (
                messages.ShellExit("shell-1", 3, "it ended"),
                {"t": "shell_exit", "id": "shell-1", "code": 3, "text": "it ended"},
            ),
        ],
    ),
    "from a client": (
        FROM_CLIENT,
        [
            (messages.Requests(), {"t": "requests"}),
            (
                messages.ClientShell(("ls",), "n1", "xterm", 30, 100),
                {"t": "shell", "argv": ["ls"], "node": "n1", "term": "xterm", "rows": 30, "columns": 100},
            ),
            (messages.ClientShell(), {"t": "shell"}),
            (messages.ShellInput(), {"t": "shell_input"}),
            (messages.ShellResize(30, 100), {"t": "shell_resize", "rows": 30, "columns": 100}),
        ],
    ),
    "to a client": (
        TO_CLIENT,
        [
            (messages.ShellOutput("shell-1"), {"t": "shell_output", "id": "shell-1"}),
            (messages.ShellExit("", 5, "no"), {"t": "shell_exit", "id": "", "code": 5, "text": "no"}),
        ],
    ),
    "to a task of cordee vet": (
        FROM_CONDUCTOR,
        [
            (Leads(2), {"t": "welcome", "conductor": 2}),
            (Ping(), {"t": "ping"}),
            (EndVetting(3), {"t": "bye", "code": 3}),
            (messages.Checks("c", {}, 10), {"t": "checks", "id": "c", "request": {}, "deadline_s": 10}),
            (messages.Port("p", "10.0.0.1", 1), {"t": "port", "id": "p", "host": "10.0.0.1", "count": 1}),
            (messages.Clock("t"), {"t": "clock", "id": "t"}),
        ],
    ),
    "from a task of cordee vet": (
        FROM_TASK,
        [
            (Pong(), {"t": "pong"}),
            (messages.ChecksOutput("c"), {"t": "checks_output", "id": "c"}),
            (
                messages.ChecksDone("c", 0, None, "exited", ""),
                {"t": "checks_done", "id": "c", "code": 0, "signal": None, "reason": "exited", "text": ""},
            ),
            (messages.FreePorts("p", (20001,), ""), {"t": "port", "id": "p", "ports": [20001], "text": ""}),
            (messages.Time("t", 1.5e9), {"t": "clock", "id": "t", "unix_s": 1.5e9}),
        ],
    ),
}
SHOWN = [(kinds, message, document) for kinds, shown in GOLDEN.values() for message, document in shown]
ENTRIES = [pytest.param(*entry, id=type(entry[1]).__name__) for entry in SHOWN]


@pytest.mark.parametrize(("kinds", "message", "document"), ENTRIES)
def test_a_message_is_on_the_wire_what_it_has_always_been(kinds, message, document):
    assert json.loads(json.dumps(encode(message))) == document
    assert decode(document, kinds) == message


@pytest.mark.parametrize(("kinds", "message", "document"), ENTRIES)
def test_what_a_newer_end_says_besides_is_passed_over(kinds, message, document):
    stamped = {**document, "n": 3, "seen": document.get("seen", 5), "at": document.get("at", 1.5), "tomorrow": [1]}
    assert decode(stamped, kinds) == message


def test_all_kinds_have_an_example_and_say_what_they_are():
    for kinds, shown in GOLDEN.values():
        assert {document["t"] for _, document in shown} == set(kinds.classes)
        for cls in kinds.classes.values():
            assert not cls.__doc__.startswith(cls.__name__ + "(")


@pytest.mark.parametrize("kind", ["hello", "", None, 5, ["lease"], {"t": 1}, "x" * 10_000])
def test_a_kind_that_the_other_end_does_not_send_is_refused_with_those_that_it_does(kind):
    with pytest.raises(WireError, match="not known") as refused:
        decode({"t": kind}, FROM_SUPERVISOR)
    assert "welcome, lease" in refused.value.allowed
    assert len(refused.value.given) < 200


@pytest.mark.parametrize(
    ("document", "name", "given", "allowed"),
    [
        ({"t": "lease"}, "of", "nothing", "a number"),
        ({"t": "lease", "of": "soon"}, "of", "'soon'", "a number"),
        ({"t": "lease", "of": True}, "of", "True", "a number"),
        ({"t": "lease", "of": float("nan")}, "of", "nan", "a finite number"),
        ({"t": "ack", "sequence": 1.0}, "sequence", "1.0", "a whole number"),
        ({"t": "ack", "sequence": 10**5000}, "sequence", "a number of more than 64 bits", "at most 64 bits"),
        ({"t": "bye", "another": 1}, "another", "1", "true or false"),
        ({"t": "stop", "group": ["ranks"], "grace_s": 1}, "group", "list of 1", "a text"),
        ({"t": "signal", "group": "g", "signal": None}, "signal", "None", "a text"),
        ({"t": "checks", "id": "c", "request": [], "deadline_s": 1}, "request", "list of 0", "an object"),
        (
            {"t": "shell", "id": "s", "argv": "ls", "term": "x", "rows": 1, "columns": 1},
            "argv",
            "'ls'",
            "list of texts",
        ),
        ({"t": "shell", "id": "s", "argv": [1], "term": "x", "rows": 1, "columns": 1}, "argv", "list of 1", "a text"),
    ],
)
def test_a_field_of_another_type_is_refused_with_its_name(document, name, given, allowed):
    with pytest.raises(WireError, match=f"{name!r} of the message {document['t']!r}") as refused:
        decode(document, FROM_SUPERVISOR)
    assert refused.value.given == given
    assert allowed in refused.value.allowed


@pytest.mark.parametrize(
    "change",
    [
        {"steps": [[1]]},
        {"steps": [[1, None]]},
        {"steps": {"1": 2}},
        {"log": ["name"]},
        {"log": "name"},
        {"data": [5]},
        {"data": [{"rank": 1}]},
        {"data": [{"attempt": 1, "rank": 1, "set": "a", "turn": 1, "saves": [{"position": "x"}]}]},
        {"found": [None]},
        {"lost_samples": None},
    ],
)
def test_what_a_message_holds_inside_is_looked_at_too(change):
    with pytest.raises(WireError, match="is not right"):
        decode({"t": "telemetry", "sequence": None, "steps": [], **change}, FROM_AGENT)


def test_what_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(codec, "MOST_CHARACTERS", 10)
    monkeypatch.setattr(codec, "MOST_ENTRIES", 3)
    for document in (
        {"t": "container_lost", "text": "x" * 11},
        {"t": "port", "id": "a", "ports": [1, 2, 3, 4], "text": ""},
        {"t": "telemetry", "sequence": None, "steps": [[0, 1]] * 4},
    ):
        with pytest.raises(WireError, match="is not right") as refused:
            decode(document, FROM_AGENT)
        assert "at most" in refused.value.allowed


def test_whatever_comes_is_a_message_or_refused():
    random.seed(5)
    rubbish = [None, True, 3, -1.5, 10**400, "x", "", [], [[]], {}, {"a": []}, float("inf"), string.printable]
    for _ in range(20_000):
        kinds, _, document = random.choice(SHOWN)
        changed = dict(document)
        for name in random.sample(sorted(changed), random.randint(0, len(changed))):
            if random.random() < 0.3:
                del changed[name]
            else:
                changed[name] = random.choice(rubbish)
        with suppress(WireError):
            message = decode(changed, kinds)
            assert decode(json.loads(json.dumps(encode(message))), kinds) == message
