"""Advice from what is known of a run: each reason, state and saying leads to a cause and to what to change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from cordee.backends.facts import NodeGroup, Partition, Reservation, SchedulerFacts
from cordee.backends.reasons.clauses import setting, size_value, time_value
from cordee.backends.reasons.situation import DiskFacts, MemoryFacts, Situation
from cordee.backends.slurm.limits import explain, read_limit, read_tres
from cordee.backends.slurm.node.commands import ENDED_STATES, WAITING_STATES
from cordee.backends.slurm.reasons import OUTLOOKS, REASONS, STATES, split_reason
from cordee.backends.slurm.refusals import explain_refusal
from cordee.core.units import parse_duration, parse_size
from cordee.job.load import load_job
from cordee.runs.state import NodeState, RankState, RunState
from cordee.systems.advise.advice import advise
from cordee.systems.advise.words import SAYINGS, causes

NOW = 1_800_000_000.0
GIB = 1 << 30
SITE = (
    Partition("normal", max_time_s=86400.0, max_nodes=8, default=True),
    Partition("debug", max_time_s=1800.0, max_nodes=2),
)
NODES = (
    NodeGroup("normal", "idle", 2, "n[1-2]", 8, 16 * GIB, 4, ("gpu", "a100")),
    NodeGroup("normal", "alloc", 1, "n3", 8, 16 * GIB, 4, ("gpu", "a100")),
    NodeGroup("normal", "drain", 1, "n4", 8, 16 * GIB, 4, ("gpu",), "ECC errors"),
    NodeGroup("debug", "idle", 2, "n[1-2]", 8, 16 * GIB, 4),
)


def plan(**parts: dict[str, Any]) -> dict[str, Any]:
    step: dict[str, Any] = {
        "request": {"nodes": 1, "spare_nodes": 0, "memory_bytes": None, "time_s": 3600.0, "scheduler": {}},
        "tasks": {"argv": ["python", "train.py"]},
        "checkpoint": {"path": "/run/checkpoints", "pattern": "step-*", "every_s": None, "declared": False},
        "restart": {"retries": 3},
        "segment": {"limit_s": 3600.0, "max_segments": 1, "next": "requeue"},
    }
    return {"backend": "slurm", "steps": [{name: {**value, **parts.get(name, {})} for name, value in step.items()}]}


def situation(state: RunState | None = None, scheduler: SchedulerFacts | None = None, **more: Any) -> Situation:
    values = {"plan": plan(), "now": NOW, **more}
    return Situation("r", state or RunState(), scheduler=scheduler or SchedulerFacts(), **values)


def waiting(reason: str, **facts: Any) -> Situation:
    head, detail = split_reason(reason)
    values = {"partition": "normal", "account": "a1", "qos": "q1", "partitions": SITE, "node_groups": NODES, **facts}
    return situation(scheduler=SchedulerFacts("slurm", "7", "PENDING", head, detail, **values))


def failed(message: str = "", **more: Any) -> RunState:
    """A run whose rank 0 failed."""
    failure = {"kind": "rank", "rank": 0, "node": "n1", "code": 1, "signal": None, "message": message}
    failure.update({key: more.pop(key) for key in ("signal", "code") if key in more})
    rank = RankState(0, "n1", "failed", 41, failure["code"], failure["signal"])
    values = {"state": "failed", "exit_code": 1, "reason": "retries", "text": f"rank 0 on n1 exited: {message}", **more}
    attempts = [{"attempt": 1, "started_at": NOW - 900.0}]
    times = {"started_at": NOW - 1000.0, "ended_at": NOW, "attempts": attempts}
    return RunState(**{"failures": [failure], "ranks": [rank], **times, **values})


# Every reason and state


@pytest.mark.parametrize("name", REASONS)
def test_every_reason_gives_a_sentence_and_something_to_do(name):
    advice = advise(waiting(name))
    assert advice.where == "waiting"
    assert advice.verdict.startswith("it waits because ")
    assert "{" not in advice.verdict
    assert advice.findings[0].next
    assert REASONS[name].outlook in OUTLOOKS


@pytest.mark.parametrize("name", STATES)
def test_every_state_of_a_job_leads_to_a_verdict(name):
    advice = advise(situation(scheduler=SchedulerFacts("slurm", "7", name)))
    assert advice.verdict
    assert advice.failed == (name in ENDED_STATES - {"CANCELLED"})
    if name in WAITING_STATES - {"CONFIGURING"}:
        assert advice.where == "waiting"


def test_the_states_of_a_job_are_all_known():
    assert set(STATES) >= ENDED_STATES | WAITING_STATES


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ReqNodeNotAvail,_UnavailableNodes:n[3-4]", ("ReqNodeNotAvail", "UnavailableNodes:n[3-4]")),
        ("ReqNodeNotAvail, Reserved for maintenance", ("ReqNodeNotAvail", "Reserved for maintenance")),
        ("launch_failed_requeued_held", ("launch failed requeued held", "")),
        ("(launch failed requeued held)", ("launch failed requeued held", "")),
        ("RaisedSignal:9(Killed)", ("RaisedSignal", "9(Killed")),
        (
            "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions",
            ("Nodes required for job are DOWN", "DRAINED or reserved for jobs in higher priority partitions"),
        ),
        ("None", ("", "")),
        ("Priority", ("Priority", "")),
    ],
)
def test_a_reason_is_read_in_every_spelling(written, expected):
    assert split_reason(written) == expected


@pytest.mark.parametrize(
    ("name", "said", "outlook"),
    [
        ("QOSMaxSubmitJobPerUserLimit", "QOS q1 limits the number of jobs in the queue of each person", "turn"),
        ("QOSMaxJobsPerUserLimit", "QOS q1 limits the number of running jobs of each person", "turn"),
        ("QOSMaxWallDurationPerJobLimit", "QOS q1 limits the running time of a job", "never"),
        ("QOSMaxCpuPerUserLimit", "QOS q1 limits the number of cores of each person", "turn"),
        ("QOSMaxGRESPerUser", "QOS q1 limits the number of GPUs or other devices of each person", "turn"),
        ("QOSMinCpuNotSatisfied", "QOS q1 sets a least number of cores for a job", "never"),
        ("QOSGrpNodeLimit", "QOS q1 limits the number of nodes of all its jobs together", "turn"),
        ("AssocGrpCPUMinutesLimit", "the budget of cores times minutes of account a1 is used up or too small", "act"),
        ("AssocGrpCPURunMinutesLimit", "account a1 limits the cores times minutes that its running jobs", "turn"),
        ("AssocMaxWallDurationPerJobLimit", "account a1 limits the running time of a job", "never"),
        ("AssocGrpGRES", "account a1 limits the number of GPUs or other devices of all its jobs together", "turn"),
        ("AssocMaxJobsLimit", "account a1 limits the number of running jobs of each person", "turn"),
        ("MaxMemoryPerAccount", "QOS q1 limits the memory of each account", "turn"),
        ("QOSGrpWallLimit", "the budget of running time of QOS q1 is used up or too small", "act"),
        ("AssocGrpSomethingNewLimit", "a limit of account a1 holds it back: AssocGrpSomethingNewLimit", "act"),
        ("Weather", "Slurm says 'Weather'", "act"),
    ],
)
def test_limits_are_read_from_the_parts_of_their_names(name, said, outlook):
    advice = advise(waiting(name))
    assert said in advice.verdict
    assert advice.findings[0].evidence["outlook"] == outlook
    assert advice.findings[0].next


def test_a_name_of_the_table_is_no_limit():
    assert [name for name in REASONS if read_limit(name)] == []
    assert explain("PartitionTimeLimit") is REASONS["PartitionTimeLimit"]


def test_lists_of_resources_are_numbers():
    assert read_tres("cpu=4,mem=2G,node=1,gres/gpu:a100=3") == {
        "cpu": 4,
        "mem": 2 * GIB,
        "node": 1,
        "gres/gpu:a100": 3,
    }
    assert read_tres("mem=400") == {"mem": 400 << 20}


# Waiting, with numbers


def first(given: Situation) -> Any:
    return advise(given).findings[0]


def test_a_time_limit_over_the_partitions_names_both_and_what_fits():
    finding = first(waiting("PartitionTimeLimit", partition="debug", time_limit_s=7200.0))
    assert (finding.severity, finding.given, finding.allowed) == (
        "error",
        "time limit 2 h",
        "at most 30 min in debug",
    )
    assert finding.evidence["change"] == {"need.time": "30min"}
    assert '[need] time = "30min"' in finding.next
    assert '[need] partition = "normal"' in finding.next
    assert '[partitions.debug] max_time = "30min"' in finding.next


def test_too_many_nodes_name_how_many_there_are():
    finding = first(waiting("PartitionNodeLimit", partition="debug", node_count=4))
    assert finding.allowed == "at most 2 in debug"
    assert finding.evidence["change"] == {"need.nodes": 2}
    assert '[need] partition = "normal"' in finding.next


def test_what_no_node_can_hold_names_the_nodes():
    facts = {"cores": 64, "memory_bytes": 4 * GIB, "gpus_per_node": 2, "node_count": 1}
    finding = first(waiting("PartitionConfig", **facts))
    assert finding.given == "on each node: 64 cores, 4.29 GB memory, 2 GPUs"
    assert finding.allowed == "8 cores, 17.2 GB memory, 4 GPUs"


def test_a_limit_of_time_is_told_with_its_value():
    finding = first(waiting("QOSMaxWallDurationPerJobLimit", limits={"MaxWall": "00:10:00"}, time_limit_s=1200.0))
    assert finding.allowed == "MaxWall = 00:10:00"
    assert finding.evidence["change"] == {"need.time": "10min"}


def test_a_limit_of_jobs_counts_the_persons_jobs():
    facts = {"limits": {"MaxJobsPU": "1"}, "own_jobs": {"RUNNING": 1, "PENDING": 2}}
    finding = first(waiting("QOSMaxJobsPerUserLimit", **facts))
    assert (finding.given, finding.allowed) == ("your jobs: 2 pending, 1 running", "MaxJobsPU = 1")


def test_a_job_that_is_over_a_limit_by_itself_will_never_start():
    facts = {"limits": {"MaxTRESPU": "gres/gpu=2"}, "tres": {"gres/gpu": 3.0}}
    finding = first(waiting("QOSMaxGRESPerUser", **facts))
    assert finding.severity == "error"
    assert "asks for more by itself" in finding.text
    facts["tres"] = {"gres/gpu": 2.0}
    assert first(waiting("QOSMaxGRESPerUser", **facts)).severity == "info"


def test_drained_nodes_are_named_with_the_operators_words():
    advice = advise(waiting("ReqNodeNotAvail,_UnavailableNodes:n4", node_count=4))
    assert "n4 drain: ECC errors" in advice.verdict
    assert advice.findings[1].rule == "too-few-nodes"
    assert advice.findings[1].evidence["change"] == {"need.nodes": 3}


def test_slurms_long_reason_for_drained_nodes_is_no_reservation():
    words = "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions"
    verdict = advise(waiting(words)).verdict
    assert verdict.endswith("are down, drained or kept for higher partitions (n4 drain: ECC errors)")


def test_where_there_is_no_reservation_a_drained_node_is_what_may_be_reserved():
    assert "n4 drain: ECC errors" in advise(waiting("ReqNodeNotAvail,_May_be_reserved_for_other_job")).verdict


def test_a_reservation_ahead_is_told_with_the_time_that_fits_before_it():
    ahead = (Reservation("maintenance", NOW + 7200.0, NOW + 9000.0, "n[1-4]"),)
    facts = {"reservations": ahead, "time_limit_s": 14400.0}
    finding = first(waiting("ReqNodeNotAvail,_May_be_reserved_for_other_job", **facts))
    assert "maintenance" in finding.text
    assert parse_duration(finding.evidence["change"]["need.time"]) < 7200


def test_ones_own_reservation_says_when_it_begins():
    facts = {"reservation": "mine", "reservations": (Reservation("mine", NOW + 600.0),)}
    assert "its reservation mine begins at 2027-01-15T08:10Z" in advise(waiting("Reservation", **facts)).verdict


def test_a_requeued_job_waits_for_its_pause():
    assert "it was requeued" in first(waiting("BeginTime", eligible_at=NOW + 60, restarts=1)).text
    assert "it may not begin before 2027-01-16" in first(waiting("BeginTime", eligible_at=NOW + 86400)).text


def test_the_features_that_there_are_are_listed():
    finding = first(waiting("BadConstraints", features="h100"))
    assert finding.given == '[need] constraint = "h100"'
    assert finding.allowed == ["a100", "gpu"]


def test_ones_own_accounts_are_listed():
    assert first(waiting("InvalidAccount", accounts=("a7", "a8"))).allowed == ("a7", "a8")
    assert first(waiting("InvalidQOS", qos_allowed=("normal",))).allowed == ("normal",)


def test_a_queue_says_when_it_expects_to_start_and_how_full_it_is():
    advice = advise(waiting("Priority", starts_at=NOW + 7200.0, priority={"age": 10.0, "fairshare": 0.0}))
    assert advice.findings[0].allowed == "2 idle of 3 usable nodes in normal"
    assert advice.findings[0].evidence["priority"] == {"age": 10.0}
    assert [finding.rule for finding in advice.findings[1:]] == ["expected-start"]
    assert "in 2 h, at 2027-01-15T10:00Z" in advice.findings[1].text


def test_a_job_without_a_time_of_its_own_is_told_to_ask_for_one():
    given = replace(waiting("Resources"), plan=plan(request={"time_s": None}))
    assert "no-time-asked" in [finding.rule for finding in advise(given).findings]


def test_braces_in_somebody_elses_words_are_left_alone():
    nodes = (NodeGroup("normal", "drain", 1, "n4", reason="bad {gpu} {job}"),)
    assert "(n4 drain: bad {gpu} {job})" in advise(waiting("ReqNodeNotAvail", node_groups=nodes)).verdict


def test_a_run_that_nobody_knows_is_told_apart_from_one_that_could_not_be_asked_about():
    assert first(situation(scheduler=SchedulerFacts("slurm"))).rule == "no-job"
    unasked = SchedulerFacts("slurm", unknown=("your jobs: squeue: no answer",))
    assert first(situation(scheduler=unasked)).rule == "scheduler-unknown"
    assert advise(situation(scheduler=unasked)).facts["unknown"] == ["your jobs: squeue: no answer"]


def test_a_failing_prolog_is_told_when_the_job_came_back():
    nodes = (*NODES, NodeGroup("normal", "drng", 1, "n9", reason="Prolog error"))
    advice = advise(waiting("BeginTime", eligible_at=NOW + 60, restarts=1, node_groups=nodes))
    assert [finding.evidence["nodes"] for finding in advice.findings if finding.rule == "prolog"] == ["n9"]


def test_between_segments_it_says_where_the_next_goes_on():
    chain = [{"segment": 1, "reason": "time_limit", "checkpoint": "step-10", "progress": True, "next": "requeue"}]
    advice = advise(replace(waiting("Priority"), state=RunState(chain=chain)))
    assert advice.findings[-1].text == "segment 1 has ended (time_limit) and the next continues from step-10"


# Failed


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "gpu-memory"),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying", "gpu-memory"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu-hardware"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8 GiB; MemoryError", "memory"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch.", "memory"),
        ("RuntimeError: DataLoader worker (pid 5) is killed by signal: Killed.", "memory"),
        ("RuntimeError: unable to allocate shared memory(shm) for file </torch_1>", "shared-memory"),
        ("OSError: [Errno 122] Disk quota exceeded: 'x'", "quota"),
        ("OSError: [Errno 28] No space left on device", "disk-full"),
        ("OSError: [Errno 30] Read-only file system: '/home/me/x'", "read-only"),
        ("OSError: [Errno 116] Stale file handle", "file-system"),
        ("OSError: [Errno 24] Too many open files", "open-files"),
        ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)", "collective-timeout"),
        (
            "RuntimeError: [gloo/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation",
            "collective-timeout",
        ),
        ("RuntimeError: The server socket has failed to listen: [Errno 98] Address already in use", "address-in-use"),
        ("requests.exceptions.ConnectionError: Max retries exceeded with url: /api/models", "no-network"),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "no-network"),
        ("torch.distributed.DistBackendError: NCCL error in: x.cpp:1, ncclSystemError: System call failed", "nccl"),
        ("RuntimeError: No CUDA GPUs are available", "no-gpu"),
        ("RuntimeError: CUDA error: invalid device ordinal", "no-gpu"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "gpu-architecture"),
        ("RuntimeError: CUDA error: device-side assert triggered", "gpu-fault"),
        ("ModuleNotFoundError: No module named 'flash_attn'", "import"),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file", "library"),
        ("ImportError: cannot import name 'x' from 'y'", "import"),
        ("Lmod has detected the following error: The following module(s) are unknown: cuda", "module-unknown"),
        ("/bin/bash: line 6: module: command not found", "command"),
        ("PermissionError: [Errno 13] Permission denied: '/scratch/other'", "permission"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'", "missing-file"),
        (
            "RuntimeError: Error(s) in loading state_dict for GPT: Missing key(s) in state_dict: h",
            "checkpoint-mismatch",
        ),
        ("torch.distributed.DistNetworkError: The client socket has timed out after 60000ms", "rendezvous"),
        ("train.py: error: unrecognized arguments: --resume", "arguments"),
        ("SyntaxError: invalid syntax", "syntax"),
        ("ValueError: bad shape", "exception"),
        ("RuntimeError: Distributed package doesn't have NCCL built in", "nccl-without-gpu"),
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
            "but not set",
            "no-world",
        ),
    ],
)
def test_what_programs_say_is_understood(line, rule):
    advice = advise(situation(failed(line)))
    assert advice.failed
    assert advice.findings[0].rule == rule
    assert advice.findings[0].next
    assert "{" not in advice.verdict


def test_the_table_of_sayings_is_used_as_a_whole():
    lines = test_what_programs_say_is_understood.pytestmark[0].args[1]
    assert {rule for _, rule in lines} == {saying.rule for saying in SAYINGS}


def test_harmless_lines_say_nothing():
    harmless = ["epoch 3 loss 1.25", "saved step-100", "using NCCL backend", "memory 12 GB of 80 GB", "lr 1e-5"]
    assert [finding.rule for finding in causes(harmless)] == []


def test_the_message_counts_before_earlier_lines_unless_a_resource_ran_out():
    noise = ("[W] Connection reset by peer", "ValueError: bad shape")
    assert first(situation(failed("ValueError: bad shape"), output=noise)).rule == "exception"
    full = ("OSError: [Errno 28] No space left on device", "RuntimeError: could not save")
    assert first(situation(failed("RuntimeError: could not save"), output=full)).rule == "disk-full"


def test_what_is_printed_whatever_happens_is_no_cause():
    wandb = (
        "wandb: Network error (ConnectionError), entering retry loop.",
        "wandb: Syncing to https://x: Connection refused",
    )
    assert first(situation(failed("stopped early"), output=wandb)).rule == "failed"
    killed = failed(signal="SIGKILL", code=None)
    assert first(situation(killed, output=("retry after ConnectionError: https://x", *wandb))).rule == "killed"
    full = ("OSError: [Errno 28] No space left on device",)
    assert first(situation(killed, output=full)).rule == "disk-full"


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT", "SIGTERM", "SIGXCPU"])
def test_a_signal_is_explained(name):
    finding = first(situation(failed(signal=name, code=None)))
    assert finding.rule == "signal"
    assert name in finding.text


def test_slurms_out_of_memory_asks_for_more_of_it():
    scheduler = SchedulerFacts("slurm", "7", "OUT_OF_MEMORY", memory_bytes=4 * 10**9, most_rss_bytes=3 * 10**9)
    advice = advise(situation(RunState(state="running"), scheduler))
    assert advice.verdict == "it failed because it used more memory than the 4 GB of a node"
    assert advice.findings[0].evidence["change"] == {"need.memory": "6GB"}
    assert advice.findings[0].given == "a peak of 3 GB was measured"


def test_a_kill_is_put_down_to_memory_only_with_evidence():
    state = failed(signal="SIGKILL", code=None)
    assert first(situation(state)).rule == "killed"
    assert "at most 40%" in first(situation(state, memory=MemoryFacts(4e9, 1e10))).text
    near = first(situation(state, memory=MemoryFacts(9.5e9, 1e10)))
    assert (near.rule, "as its use of memory suggests" in near.text) == ("memory", True)
    logged = first(situation(state, memory=MemoryFacts(4e9, 1e10, (41,))))
    assert (logged.rule, "as the kernel's log says" in logged.text) == ("memory", True)
    assert first(situation(state, memory=MemoryFacts(4e9, 1e10, (7,)))).rule == "killed"


def test_a_time_limit_is_doubled_and_says_what_resume_would_do():
    scheduler = SchedulerFacts("slurm", "7", "TIMEOUT", time_limit_s=3600.0)
    finding = first(situation(RunState(state="running", checkpoint="step-9"), scheduler))
    assert finding.evidence["change"] == {"need.time": "2h"}
    assert "step-9" in finding.next
    unsaved = first(situation(RunState(state="failed", reason="time_limit", text="the time limit"), scheduler))
    assert "begin at zero" in unsaved.next


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        ("NODE_FAIL", "job-node-fail"),
        ("PREEMPTED", "job-preempted"),
        ("BOOT_FAIL", "job-boot-fail"),
        ("DEADLINE", "job-deadline"),
    ],
)
def test_the_schedulers_word_counts_where_the_journal_has_none(state, rule):
    assert first(situation(RunState(state="running"), SchedulerFacts("slurm", "7", state, nodes="n3"))).rule == rule


def test_a_job_that_vanished_is_a_failure_with_its_exit_code():
    advice = advise(
        situation(RunState(state="running"), SchedulerFacts("slurm", "7", "FAILED", "NonZeroExitCode", exit_code=7))
    )
    assert (
        advice.verdict
        == "it failed because it stopped without a last word: its batch script ended with an error (code 7)"
    )
    here = advise(situation(RunState(state="running"), SchedulerFacts("local", None, "GONE")))
    assert "nothing of it is left on this machine" in here.verdict


def test_vetting_names_node_and_check():
    results = [{"check": "host.disk", "status": "fail", "evidence": "3 MB free in /tmp"}]
    state = RunState(
        state="failed", reason="vetting", text="0 healthy nodes", nodes=[NodeState("n1", "bad", results=results)]
    )
    advice = advise(situation(state))
    assert advice.verdict == "it failed because node n1 did not pass host.disk: 3 MB free in /tmp"
    assert "min_disk" in advice.findings[0].next


def test_a_lost_node_asks_for_a_spare():
    state = RunState(
        state="failed", reason="node_lost", text="n2 did not come back", nodes=[NodeState("n2", role="lost")]
    )
    finding = first(situation(state))
    assert finding.rule == "node-lost"
    assert finding.evidence["change"] == {"need.spare_nodes": 1}


def test_a_chain_without_progress_is_told_to_save_more_often():
    text = "segment 2 ended without a new complete checkpoint: the next would repeat it"
    finding = first(situation(RunState(state="failed", reason="no_progress", text=text)))
    assert finding.rule == "chain-no-progress"
    assert finding.evidence["change"] == {"checkpoint.every": "15min"}
    assert "'step-*'" in finding.next


def test_a_forbidden_next_segment_is_told():
    state = RunState(state="failed", reason="time_limit", text="the time limit is near")
    rules = [one.rule for one in advise(situation(state, plan=plan(segment={"next": "forbidden"}))).findings]
    assert rules == ["time", "chain-forbidden"]


def test_a_next_segment_that_was_refused_is_explained():
    text = "the time is near, and it cannot continue: sbatch: error: Batch job submission failed: Invalid qos specification"
    assert first(situation(RunState(state="failed", reason="not_continued", text=text))).rule == "refused-qos"


def test_a_run_whose_step_failed_points_to_the_step_and_explains_no_ranks_of_its_own():
    child = {"name": "train", "run": "train-1", "state": "failed", "text": "rank 0 on n1 exited with code 3"}
    done = {"name": "prepare", "run": "prepare-1", "state": "finished", "text": ""}
    text = f"train failed: {child['text']}"
    state = RunState(state="failed", exit_code=1, reason="retries", text=text, children=[done, child])
    advice = advise(situation(state))
    assert advice.verdict == f"it failed because {text}"
    assert [(one.rule, one.next) for one in advice.findings] == [
        ("below", "`cordee advise r/train` says why, and what to change")
    ]


def test_a_crash_loop_and_missing_checkpoints_are_told_beside_the_cause():
    rules = [one.rule for one in advise(situation(failed("ValueError: bad", reason="crash_loop"))).findings]
    assert rules == ["exception", "crash-loop", "no-checkpoint"]


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified", "account"),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", "qos"),
        ("sbatch: error: invalid partition specified: nope", "partition"),
        ("sbatch: error: Memory specification can not be satisfied", "memory"),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", "configuration"),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", "constraint"),
        ("sbatch: error: Batch job submission failed: Requested reservation is invalid", "reservation"),
        ("sbatch: error: Batch job submission failed: Invalid license specification", "licence"),
        ("sbatch: error: Batch job submission failed: Invalid node name specified", "node-name"),
        ("sbatch: error: Invalid generic resource (gres) specification", "devices"),
        ("sbatch: error: Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)", "time"),
        ("sbatch: error: Batch job submission failed: Node count specification invalid", "nodes"),
        ("sbatch: error: Batch job submission failed: Job dependency problem", "dependency"),
        ("sbatch: unrecognized option '--nope'", "option"),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Job violates accounting/QOS policy", "qosmaxsubmitjobperuserlimit"),
        ("sbatch: error: Job violates accounting/QOS policy (job submit limit, user's size)", "policy"),
    ],
)  # fmt: skip
def test_refusals_of_sbatch_are_understood(said, rule):
    finding = explain_refusal(said, qos="q1")
    assert finding is not None
    assert finding.rule == f"refused-{rule}"
    assert finding.next
    assert "{" not in finding.text


def test_an_unknown_refusal_is_not_guessed_at():
    assert explain_refusal("sbatch: error: the moon is full") is None


# Running and ended


def test_a_run_without_trouble_has_nothing_to_advise():
    state = RunState(state="running", started_at=NOW - 60.0, attempts=[{"attempt": 1, "started_at": NOW - 50.0}])
    advice = advise(situation(state, SchedulerFacts("slurm", "7", "RUNNING")))
    assert (advice.verdict, advice.findings) == ("it runs; nothing to advise", ())
    assert advise(situation(RunState(state="finished"))).verdict == "it finished; nothing to advise"


def test_a_job_with_nodes_and_without_a_supervisor_starts():
    assert advise(situation(scheduler=SchedulerFacts("slurm", "7", "RUNNING"))).where == "starting"


def test_a_job_that_says_nothing_for_long_is_told_with_its_last_words():
    scheduler = SchedulerFacts("slurm", "7", "RUNNING", elapsed_s=300.0)
    assert "submit/slurm-7.out" in first(situation(scheduler=scheduler)).next
    said = situation(scheduler=scheduler, own_output=("ModuleNotFoundError: No module named 'dataclasses'",))
    assert advise(said).verdict.endswith("has not said a word: Python has no module dataclasses")


def test_the_supervisors_own_words_count_when_the_run_vanished():
    gone = SchedulerFacts("slurm", "7", "FAILED", exit_code=1)
    words = ("OSError: [Errno 116] Stale file handle",)
    assert first(situation(RunState(state="running"), gone, own_output=words)).rule == "file-system"


def test_a_slow_run_is_told_that_its_time_will_not_do():
    attempts = [{"attempt": 1, "started_at": NOW - 1800.0}]
    state = RunState(
        state="running", started_at=NOW - 1800.0, attempts=attempts, step=100, total=1000, checkpoint="step-90"
    )
    finding = first(situation(state, SchedulerFacts("slurm", "7", "RUNNING", time_limit_s=3600.0, elapsed_s=1800.0)))
    assert finding.rule == "time-short"
    assert parse_duration(finding.evidence["change"]["need.time"]) >= 18000


def test_what_threatens_a_running_run_is_told():
    state = RunState(state="running", started_at=NOW - 60.0)
    disks = (
        DiskFacts("the run folder", "/a", 10**6, 10**12),
        DiskFacts("the checkpoint folder", "/b", 10**11, 10**12, files_free=3),
        DiskFacts("the working folder", "/c", 10**11, 10**12, writable=False),
    )
    scheduler = SchedulerFacts("slurm", "7", "RUNNING")
    advice = advise(situation(state, scheduler, disks=disks, memory=MemoryFacts(9.8e9, 1e10), silent_s=600.0))
    rules = [finding.rule for finding in advice.findings]
    assert rules == ["memory-short", "disk-short", "files-short", "disk-read-only", "silent"]
    assert advice.verdict.startswith("it runs, but a node used 9.8 GB of 10 GB memory (98%)")


def test_a_cancelled_run_says_by_whom():
    state = RunState(state="cancelled", text="cancelled by you", cancel_requested=True)
    assert advise(situation(state)).verdict == "it was cancelled by you; `cordee resume` continues it"
    assert "scancel" in advise(situation(RunState(state="running"), SchedulerFacts("slurm", "7", "CANCELLED"))).verdict


def test_a_damaged_plan_and_an_empty_journal_are_advised_upon():
    for broken in ({}, {"steps": []}, {"steps": [None]}, {"steps": "x"}):
        for state in (RunState(), failed("ValueError: x"), RunState(state="running")):
            assert advise(Situation("r", state, broken)).verdict


# The document, and what to write into cordee.toml


def test_the_document_is_json_and_has_its_keys():
    document = advise(waiting("Priority")).document()
    again = json.loads(json.dumps(document, allow_nan=False))
    assert list(again) == ["schema", "run", "state", "verdict", "findings", "facts"]
    assert again["schema"] == "cordee.advise/1"
    assert again["facts"]["scheduler"]["reason"] == "Priority"
    assert {"text", "severity", "rule", "given", "allowed", "next"} <= set(again["findings"][0])


def test_the_text_says_the_cause_once():
    lines = advise(waiting("JobHeldUser")).lines()
    assert lines == ["r: it waits because you hold it", "  next:    `scontrol release 7`"]


@pytest.mark.parametrize(
    "change", [{"need.time": time_value(5400)}, {"need.memory": size_value(6.2e9, up=True)}, {"need.nodes": 3}]
)
def test_what_is_proposed_is_a_valid_document(change, tmp_path):
    lines = [setting(key, value) for key, value in change.items()]
    text = "\n".join(line.replace("] ", "]\n") for line in lines)
    (tmp_path / "cordee.toml").write_text(f'name = "t"\nrun = "python train.py"\n{text}\n')
    assert load_job(tmp_path).job.need


def test_values_are_written_as_people_write_them():
    assert [time_value(seconds) for seconds in (45, 90, 600, 5400, 7200, 5000)] == [
        "45s",
        "90s",
        "10min",
        "90min",
        "2h",
        "83min",
    ]
    assert parse_size(size_value(6.2e9, up=True)) == 7 * 10**9
    assert parse_size(size_value(6.2e9)) == 6 * 10**9
    assert size_value(150e6) == "150MB"


def test_a_back_end_without_reasons_of_its_own_is_told_in_its_own_words():
    waits = advise(situation(scheduler=SchedulerFacts("elsewhere", "7", "PENDING", "the shed is closed")))
    assert waits.verdict == "it waits because the shed is closed"
    ended = advise(situation(RunState(state="running"), SchedulerFacts("elsewhere", "7", "NODE_FAIL", nodes="n3")))
    assert ended.verdict == "it failed because its job ended (node fail) (n3)"
    silent = first(situation(scheduler=SchedulerFacts("elsewhere", "7", "RUNNING", elapsed_s=300.0)))
    assert "control/supervisor.log" in silent.next
    assert "slurm" not in silent.next


def test_a_refusal_of_a_back_end_that_explains_none_is_told_as_it_was_said():
    state = RunState(state="failed", reason="refused", text="Invalid account")
    assert first(situation(state, SchedulerFacts("elsewhere"))).text == "Invalid account"
    assert first(situation(state, SchedulerFacts("slurm"))).rule == "refused-account"
