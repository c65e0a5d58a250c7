from __future__ import annotations

import socket

import pytest

from cordee.telemetry.node.record.names import command_name, default_names
from cordee.telemetry.node.record.options import RecordError, checked_source, parse_interval
from cordee.telemetry.node.record.recorded_process import RecordedProcess

SRUN = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "2",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURMD_NODENAME": "n2",
}
TORCHRUN = {
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "MASTER_ADDR": "n1",
    "MASTER_PORT": "29500",
}


def test_a_task_of_srun_knows_its_rank_node_and_step():
    place = RecordedProcess.here(SRUN)
    assert (place.launcher, place.rank, place.world_size, place.local_rank) == ("srun", 5, 8, 1)
    assert (place.node, place.job, place.step, place.numbers) == ("n2", "77", "2", (2, 4))
    assert place.together
    assert RecordedProcess.here({**SRUN, "SLURM_PROCID": "0", "SLURMD_NODENAME": "n1"}).key == place.key
    assert RecordedProcess.here({**SRUN, "SLURM_STEP_ID": "3"}).key != place.key
    assert RecordedProcess.here({**SRUN, "SLURM_RESTART_COUNT": "1"}).key != place.key


def test_a_launcher_inside_another_knows_more():
    place = RecordedProcess.here({**SRUN, **TORCHRUN})
    assert (place.launcher, place.rank, place.world_size, place.attempt) == ("torchrun", 3, 4, 2)
    restarted = {**SRUN, **TORCHRUN, "MASTER_PORT": "31234", "TORCHELASTIC_RESTART_COUNT": "3"}
    assert RecordedProcess.here(restarted).key == place.key
    inside = {"OMPI_COMM_WORLD_RANK": "6", "OMPI_COMM_WORLD_SIZE": "9", "PMIX_NAMESPACE": "prterun-1"}
    place = RecordedProcess.here({**SRUN, **inside})
    assert (place.launcher, place.rank, place.world_size, place.job) == ("mpirun", 6, 9, "77")
    assert RecordedProcess.here({**SRUN, **inside, "PMIX_NAMESPACE": "prterun-2"}).key != place.key


@pytest.mark.parametrize(
    "environ", [{}, {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0"}, {**SRUN, "SLURM_STEP_ID": "4294967290"}]
)
def test_a_process_on_its_own_is_rank_0_and_like_no_other(environ):
    place = RecordedProcess.here(environ)
    assert (place.launcher, place.rank, place.world_size, place.step) == ("", 0, 1, "")
    assert not place.together
    assert place.host == socket.gethostname()
    assert str(place.host) in place.key


def test_ranks_that_were_started_by_hand_meet_by_their_address():
    places = [
        RecordedProcess.here({"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"})
        for rank in ("0", "1")
    ]
    assert places[0].key == places[1].key
    assert [place.launcher for place in places] == ["env", "env"]
    other = RecordedProcess.here({"PMI_RANK": "1", "PMI_SIZE": "2"})
    assert (other.launcher, other.rank, other.world_size) == ("mpirun", 1, 2)


def test_all_that_were_started_together_look_for_their_recording_under_the_same_names():
    names = default_names(RecordedProcess.here(SRUN), ["python", "train.py"])
    assert [next(names), next(names)] == ["77.2", "77.2-2"]
    first, second = (
        [*zip(range(2), default_names(RecordedProcess.here({**TORCHRUN, "RANK": rank}), ["./train"]), strict=False)]
        for rank in ("0", "1")
    )
    assert first == second
    assert first[0][1].startswith("train-")
    alone = default_names(RecordedProcess.here({}), ["python", "-u", "src/train.py"])
    assert next(alone) != next(alone)
    assert next(alone).startswith("train-2")


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["python", "-u", "/a/train.v2.py", "--lr", "1"], "train.v2"),
        (["/opt/bin/simulate", "x.py"], "simulate"),
        (["sh", "-c", "echo a.b; exit 3"], "sh"),
        (["./a b$c"], "a-b-c"),
        (["..."], "command"),
    ],
)
def test_a_recording_is_called_what_people_call_the_command(argv, name):
    assert command_name(argv) == name


def test_intervals_are_durations_within_what_counters_can_do():
    assert [parse_interval(text) for text in ("1s", "100ms", "0.5", "1min", "10")] == [1.0, 0.1, 0.5, 60.0, 10.0]
    for text in ("50ms", "2min", "soon", "", "-1"):
        with pytest.raises(RecordError) as raised:
            parse_interval(text)
        assert raised.value.exit_code == 125
        assert "such as 1s, 100ms" in str(raised.value)


def test_a_source_that_does_not_exist_is_refused_with_those_that_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    assert checked_source("replay:old") == f"replay:{tmp_path / 'old'}"
    with pytest.raises(RecordError, match="no recording to replay"):
        checked_source("replay:new")
    with pytest.raises(RecordError, match="no such source") as raised:
        checked_source("nvidia")
    assert "nvml-gpm" in str(raised.value)
