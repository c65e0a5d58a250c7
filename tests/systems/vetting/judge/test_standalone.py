"""Tasks that vet together without a run: real processes, many nodes on one machine, and whatever may befall them."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys

import pytest

from cordee import wire
from cordee.core.errors import CordeeError, UsageError
from cordee.machine.processes import tree as processes
from cordee.systems.vetting.node.standalone.membership import VettingRoster
from cordee.systems.vetting.node.standalone.results import code_of, usable_nodes, write_results
from cordee.systems.vetting.node.standalone.shared_folder import SharedFolder
from support.hosts.vetting_tasks import VettingTasks, wait_for


def document(verdict: str = "exclude", exclude: tuple[str, ...] = ("n2",), **verdicts: str) -> dict:
    nodes = verdicts or {"n1": "healthy", "n2": "bad", "n3": "suspect"}
    return {
        "protocol": "p",
        "verdict": verdict,
        "exclude": list(exclude),
        "reason": "because",
        "seconds": 1.0,
        "nodes": [{"node": node, "verdict": said, "results": []} for node, said in nodes.items()],
    }


# Who a task is


def test_a_slurm_step_says_who_a_task_is():
    step = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "2",
        "SLURM_STEP_NODELIST": "n[1-3],m9",
        "SLURM_STEP_TASKS_PER_NODE": "5,1(x3)",
        "SLURM_NODEID": "3",
        "SLURM_LOCALID": "0",
        "SLURMD_NODENAME": "m9",
    }
    world = VettingRoster.here(step)
    assert (world.identity, world.node, world.tasks, world.candidate) == ("7.2", "m9", (5, 1, 1, 1), None)
    assert VettingRoster.here({**step, "SLURM_NODEID": "2"}).candidate == 2
    assert VettingRoster.here({**step, "SLURM_NODEID": "0", "SLURM_LOCALID": "4"}).candidate is None
    assert VettingRoster.here({**step, "SLURM_RESTART_COUNT": "1"}).identity == "7-r1.2"


def test_a_batch_script_without_srun_vets_its_own_node_and_says_so():
    world = VettingRoster.here({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_JOB_NUM_NODES": "4"})
    assert world.nodes == ("n1",)
    assert "put srun before" in world.remark


def test_without_slurm_there_is_one_process():
    world = VettingRoster.here({})
    assert (world.nodes, world.alone) == (("local-0",), True)


@pytest.mark.parametrize(
    "change",
    [
        {"CORDEE_VET_NODE": "s9"},
        {"CORDEE_VET_NODE": ""},
        {"CORDEE_VET_NODES": "s[1-"},
        {"CORDEE_VET_NODES": "s1,s1"},
        {"CORDEE_VET_TASKS_PER_NODE": "2,2,2"},
        {"CORDEE_VET_TASKS_PER_NODE": "0"},
        {"CORDEE_VET_TASKS_PER_NODE": "1(x4000000000)"},
        {"CORDEE_VET_LOCAL_RANK": "1"},
        {"CORDEE_VET_ID": ""},
        {"CORDEE_VET_ID": "../../etc"},
    ],
)
def test_variables_that_contradict_each_other_are_refused(change):
    given = {"CORDEE_VET_ID": "v", "CORDEE_VET_NODES": "s[1-2]", "CORDEE_VET_NODE": "s1"}
    assert VettingRoster.here(given).tasks == (1, 1)
    with pytest.raises(UsageError):
        VettingRoster.here(given | change)


# Where tasks meet


def test_an_epoch_is_claimed_once_and_a_decision_is_made_once(tmp_path):
    one, other = SharedFolder(tmp_path, "v"), SharedFolder(tmp_path, "v")
    one.open()
    assert one.root.stat().st_mode & 0o777 == 0o700
    assert (one.claim(1), other.claim(1), other.claim(2), one.epoch()) == (True, False, True, 2)
    assert (one.decide(3), other.decide(0), other.decision()) == (True, False, 3)
    one.clear()
    assert other.decision() is None
    assert not other.decide(0)


def test_a_decision_from_before_does_not_count(tmp_path):
    meeting = SharedFolder(tmp_path, "v")
    meeting.open()
    meeting.decide(3)
    assert meeting.decision(since=(meeting.root / "decision").stat().st_mtime + 1) is None


def test_a_rendezvous_that_others_may_read_is_not_trusted(tmp_path):
    meeting = SharedFolder(tmp_path, "v")
    meeting.open()
    place = meeting.root / "rendezvous.json"
    wire.write_rendezvous(place, "127.0.0.1", 20000, 1, wire.new_token())
    assert meeting.rendezvous() is not None
    place.chmod(0o644)
    assert meeting.rendezvous() is None


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CordeeError) as error:
        SharedFolder(tmp_path / "file", "v").open()
    assert "--dir" in str(error.value)


# What is left for the script


def test_the_files_fit_a_shell_and_each_other(tmp_path):
    write_results(tmp_path / "new", document(), "7.0")
    assert (tmp_path / "new" / "exclude.txt").read_text() == "n2\n"
    assert (tmp_path / "new" / "nodes.txt").read_text() == "n1\nn3\n"
    shown = 'echo "$CORDEE_VET_VERDICT|$CORDEE_VET_EXCLUDE|$CORDEE_VET_NODES|$CORDEE_VET_HEALTHY|$CORDEE_VET_CODE"'
    script = f"set -eu; source {shlex.quote(str(tmp_path / 'new' / 'vet.env'))}; {shown}"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert told == "exclude|n2|n[1,3]|2|3\n"
    assert code_of(tmp_path / "new", "7.0", 0.0) == 3
    assert code_of(tmp_path / "new", "7.1", 0.0) is None


def test_after_an_abort_only_nodes_that_were_found_well_can_be_used():
    assert usable_nodes(document("abort", (), n1="healthy", n2="unknown", n3="suspect")) == ["n1", "n3"]
    assert usable_nodes(document("continue", (), n1="healthy", n2="unknown")) == ["n1", "n2"]


# Together


@pytest.mark.usefixtures("real")
def test_all_tasks_end_with_the_verdict_and_one_of_them_tells_it(tmp_path):
    with VettingTasks(tmp_path, 3, 2) as tasks:
        assert set(tasks.end().values()) == {0}
    printed = {key: said[0] for key, said in tasks.said.items() if said[0]}
    assert list(printed) == [(1, 0)]
    assert json.loads(printed[1, 0]) == tasks.document
    assert tasks.document["schema"] == "cordee.vetting/1"
    assert [node["node"] for node in tasks.document["nodes"]] == ["s1", "s2", "s3"]
    assert not tasks.meeting.exists()


def test_only_the_task_that_conducts_imports_what_reads_a_protocol(tmp_path):
    with VettingTasks(tmp_path, 2, 2) as tasks:
        tasks.end()
    heavy = {key: said[1].split("heavy:")[1].split() for key, said in tasks.said.items()}
    assert heavy == {(1, 0): ["pydantic", "yaml"], (1, 1): [], (2, 0): [], (2, 1): []}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.usefixtures("real")
def test_a_tenth_of_the_nodes_dead_or_silent_is_named_and_left_out(tmp_path, number):
    with VettingTasks(tmp_path, 20, gate=True, deadline_s=20.0) as tasks:
        tasks.wait_at_the_gate()
        for node in (7, 13):
            tasks.send(node, number)
        tasks.let_go()
        codes = tasks.end((7, 0), (13, 0))
    assert set(codes.values()) == {3}
    assert tasks.document["exclude"] == ["s7", "s13"]
    assert (tmp_path / "exclude.txt").read_text() == "s7\ns13\n"
    assert {result["cause"] for result in tasks.results(7).values() if result["status"] == "unknown"} == {"silent"}


@pytest.mark.usefixtures("real")
@pytest.mark.gate
def test_a_node_that_never_comes_is_named(tmp_path):
    with VettingTasks(tmp_path, 4, deadline_s=12.0, absent=((3, 0),)) as tasks:
        assert set(tasks.end().values()) == {3}
    assert tasks.document["exclude"] == ["s3"]


@pytest.mark.usefixtures("real")
def test_a_task_that_never_comes_makes_its_node_unknown(tmp_path):
    with VettingTasks(tmp_path, 4, 2, deadline_s=12.0, absent=((3, 1),)) as tasks:
        assert set(tasks.end().values()) == {3}
    assert tasks.document["exclude"] == ["s3"]
    assert tasks.results(3)["ranks"]["status"] == "unknown"
    assert "1 (never came)" in tasks.results(3)["ranks"]["evidence"]


@pytest.mark.usefixtures("real")
def test_a_task_that_hangs_makes_its_node_unknown(tmp_path):
    with VettingTasks(tmp_path, 4, 2, gate=True) as tasks:
        tasks.wait_at_the_gate()
        tasks.send(3, signal.SIGSTOP, task=1)
        tasks.let_go()
        assert set(tasks.end((3, 1)).values()) == {3}
    assert "1 (gave no sign of life)" in tasks.results(3)["ranks"]["evidence"]


@pytest.mark.usefixtures("real")
def test_a_task_that_says_what_nobody_understands_is_given_up_and_the_others_are_vetted(tmp_path):
    async def say_nonsense() -> None:
        place = wire.read_rendezvous(tmp_path / ".cordee-vet-v" / "rendezvous.json")
        where = (place.address, place.port, place.token, "agent", "s2/1")
        connection = await wire.connect(*where, epoch=place.epoch, on_message=lambda *_: None, on_close=lambda *_: None)
        connection.send({"t": "checks_done", "id": "c", "code": "0"})
        await connection.wait_closed()

    with VettingTasks(tmp_path, 3, 2, gate=True, absent=((2, 1),)) as tasks:
        tasks.wait_at_the_gate()
        asyncio.run(asyncio.wait_for(say_nonsense(), 30.0))
        tasks.let_go()
        assert set(tasks.end().values()) == {3}
    assert tasks.document["exclude"] == ["s2"]
    assert "1 (" in tasks.results(2)["ranks"]["evidence"]
    assert "'code' of the message 'checks_done' is not right" in tasks.results(2)["ranks"]["evidence"]
    assert tasks.results(1)["gate"]["status"] == tasks.results(3)["gate"]["status"] == "pass"


@pytest.mark.usefixtures("real")
def test_what_was_stuck_is_said_with_its_stack(tmp_path):
    with VettingTasks(tmp_path, 1, gate=True, deadline_s=8.0) as tasks:
        assert set(tasks.end().values()) == {4}
    gate = tasks.results(1)["gate"]
    assert (gate["status"], gate["cause"]) == ("unknown", "timeout")
    assert any("gate.py" in line for line in gate["facts"]["stack"])
    assert "gate.py" in gate["evidence"]


@pytest.mark.usefixtures("real")
def test_the_next_node_conducts_when_the_first_dies_and_no_check_runs_twice(tmp_path):
    with VettingTasks(tmp_path, 4, gate=True) as tasks:
        tasks.wait_at_the_gate()
        tasks.send(1, signal.SIGKILL)
        wait_for(lambda: SharedFolder(tmp_path, "v").epoch() == 2)
        tasks.let_go()
        codes = tasks.end()
    assert [codes[node, 0] for node in (2, 3, 4)] == [3, 3, 3]
    assert tasks.document["exclude"] == ["s1"]
    assert "s2 conducts now" in tasks.said[2, 0][1]
    assert [(tmp_path / f"came-s{node}").read_text() for node in (2, 3, 4)] == ["once\n"] * 3
    assert not tasks.meeting.exists()


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_the_third_node_conducts_when_two_have_died(tmp_path):
    with VettingTasks(tmp_path, 8, gate=True) as tasks:
        tasks.wait_at_the_gate()
        for node in (1, 2):
            tasks.send(node, signal.SIGKILL)
        wait_for(lambda: SharedFolder(tmp_path, "v").epoch() == 2)
        tasks.let_go()
        codes = tasks.end()
    assert {codes[node, 0] for node in range(3, 9)} == {3}
    assert tasks.document["exclude"] == ["s1", "s2"]


@pytest.mark.usefixtures("real")
def test_a_conductor_that_hung_for_a_while_ends_with_the_others_verdict(tmp_path):
    with VettingTasks(tmp_path, 4, gate=True) as tasks:
        tasks.wait_at_the_gate()
        tasks.send(1, signal.SIGSTOP)
        wait_for(lambda: SharedFolder(tmp_path, "v").epoch() == 2)
        tasks.let_go()
        assert set(tasks.end((1, 0)).values()) == {3}
        tasks.send(1, signal.SIGCONT)
        assert tasks.end((2, 0), (3, 0), (4, 0)) == {(1, 0): 3}
    assert tasks.document["exclude"] == ["s1"]


@pytest.mark.campaign
@pytest.mark.usefixtures("real")
def test_the_next_node_conducts_when_the_first_never_comes(tmp_path):
    with VettingTasks(tmp_path, 4, deadline_s=12.0, absent=((1, 0),)) as tasks:
        assert set(tasks.end().values()) == {3}
    assert tasks.document["exclude"] == ["s1"]


@pytest.mark.usefixtures("real")
def test_a_node_that_is_cut_off_does_not_take_the_others_away(tmp_path):
    with VettingTasks(tmp_path, 4, gate=True) as tasks:
        tasks.wait_at_the_gate()
        meeting = SharedFolder(tmp_path, "v")
        assert meeting.claim(2)
        wait_for(lambda: meeting.epoch() == 3)
        tasks.let_go()
        assert set(tasks.end().values()) == {0}


def test_a_wrong_protocol_ends_all_tasks_and_is_said_once(tmp_path):
    with VettingTasks(tmp_path, 3, checks=None) as tasks:
        assert set(tasks.end().values()) == {2}
    said = [key for key, (_, words) in tasks.said.items() if "protocol.yaml:3: a check is mistyped" in words]
    assert said == [(1, 0)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_vetting_that_is_told_to_end_leaves_nothing(tmp_path, number):
    identity = f"told-to-end-{number}"
    with VettingTasks(tmp_path, 3, gate=True, identity=identity) as tasks:
        tasks.wait_at_the_gate()
        for node in (2, 3, 1):
            tasks.send(node, number)
        assert set(tasks.end().values()) == {128 + number}
        wait_for(lambda: not processes.with_marker(f"vet-{identity}/"))
    assert not tasks.meeting.exists()
    assert not (tmp_path / "vet.json").exists()


def test_what_an_earlier_vetting_of_the_same_name_left_does_no_harm(tmp_path):
    meeting = SharedFolder(tmp_path, "v")
    meeting.open()
    meeting.claim(1)
    meeting.decide(4)
    os.utime(meeting.root / "decision", (1, 1))
    meeting.keep({"schema": "cordee.protocol/1", "name": "another"})
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    wire.write_rendezvous(meeting.root / "rendezvous.json", "127.0.0.1", port, 1, wire.new_token())
    write_results(tmp_path, document(), "v")
    os.utime(tmp_path / "vet.env", (1, 1))
    with VettingTasks(tmp_path, 3) as tasks:
        assert set(tasks.end().values()) == {0}
    assert tasks.document["protocol"] == "host"
    assert not meeting.root.exists()


@pytest.mark.usefixtures("real")
def test_two_vettings_in_one_folder_do_not_mix(tmp_path):
    with VettingTasks(tmp_path, 2, gate=True) as one, VettingTasks(tmp_path, 3, gate=True, identity="w") as other:
        wait_for(lambda: all((tmp_path / f"came-s{node}").exists() for node in (1, 2, 3)))
        one.let_go()
        assert set(one.end().values()) | set(other.end().values()) == {0}
    told = [json.loads(tasks.said[1, 0][0]) for tasks in (one, other)]
    assert [len(found["nodes"]) for found in told] == [2, 3]
    assert [found["vetting"] for found in told] == ["v", "w"]


def test_too_few_nodes_end_in_abort(tmp_path):
    with VettingTasks(tmp_path, 4, deadline_s=8.0, absent=((4, 0),), min_nodes=4) as tasks:
        assert set(tasks.end().values()) == {4}
    assert tasks.document["verdict"] == "abort"


def test_a_task_that_finds_nobody_ends_with_words(tmp_path):
    program = (
        "import sys\n"
        "from cordee.systems.vetting.node.standalone import VetOptions, take_part\n"
        f"sys.exit(take_part(VetOptions(dict, {str(tmp_path)!r}, deadline_s=1.0)))"
    )
    given = {"CORDEE_VET_ID": "v", "CORDEE_VET_NODES": "s[1-9]", "CORDEE_VET_NODE": "s9"}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **given}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 5
    assert "s9/0: nobody conducts this vetting" in done.stderr
    assert "--dir" in done.stderr


def test_one_process_needs_no_meeting(tmp_path):
    with VettingTasks(tmp_path, 1) as tasks:
        assert tasks.end() == {(1, 0): 0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exclude.txt", "nodes.txt", "vet.env", "vet.json"]


def test_tasks_of_the_command_import_nothing_heavy_but_where_it_conducts(tmp_path):
    program = (
        "import sys\n"
        "from cordee.faces.cli import main\n"
        f"try: main(['vet', 'quick', '--dir', {str(tmp_path)!r}])\n"
        "finally:\n"
        "    rooms = {name for name in sys.modules if name.startswith(('cordee.job.load', 'cordee.job.profile', 'cordee.job.cluster', 'cordee.job.plan', 'cordee.faces.report'))}\n"
        "    heavy = rooms | ({'pydantic', 'yaml', 'rich', 'jinja2', 'numpy', 'urllib.request'} & set(sys.modules))\n"
        "    print('heavy:', len(heavy), file=sys.stderr)\n"
    )
    started = []
    for node in ("s1", "s2"):
        env = {**os.environ, "CORDEE_VET_ID": "v", "CORDEE_VET_NODES": "s[1-2]", "CORDEE_VET_NODE": node}
        command = [sys.executable, "-c", program]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    (first, _), (other, said) = (process.communicate() for process in started)
    assert [process.returncode for process in started] == [0, 0], said
    assert "heavy: 0" in said
    assert "2 of 2 nodes usable" in first
    assert other == ""


def test_a_protocol_that_cannot_be_read_in_time_keeps_nobody(tmp_path):
    program = (
        "import sys, time\n"
        "from cordee.core.errors import CordeeError\n"
        "from cordee.systems.vetting.node.standalone import VetOptions, take_part\n"
        "try:\n"
        f"    take_part(VetOptions(lambda: time.sleep(600), {str(tmp_path)!r}, deadline_s=1.0))\n"
        "except CordeeError as error:\n"
        "    sys.exit(f'{error.exit_code} {error.text}')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.strip().endswith("5 the protocol could not be read within 1 s")
