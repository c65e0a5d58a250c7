"""Files of tasks, which task goes where, and what a journal of tasks says."""

import subprocess
from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.machine.slots import AllocatableGpu, CannotGive, Core, NodeSlots, SlotAllocator, SlotRequest
from cordee.systems.trials.formats import TaskDefaults, array_in, read_file, text_of_list
from cordee.systems.trials.node.queue import NodeRoom, TaskQueue
from cordee.systems.trials.node.task_list import FarmTask, lines_of, read_tasks
from cordee.systems.trials.node.task_states import TaskEnd, replay

GPUS = tuple(AllocatableGpu(f"0000:0{n}:00.0", f"GPU-{n}", frozenset({2 * n, 2 * n + 1})) for n in range(2))
NODE = NodeSlots(tuple(Core(frozenset({cpu})) for cpu in range(4)), GPUS, 1000)


def read(folder: Path, text: str, kind: str = "auto") -> list[FarmTask]:
    (folder / "tasks").write_text(text)
    return read_file(folder / "tasks", kind, TaskDefaults())


def test_lines_are_tasks_and_say_what_those_behind_them_ask_for(tmp_path: Path) -> None:
    one, two, three = read(tmp_path, "a b\n\n# c\n#cordee cores=2 gpus=0.5 memory=1kB time=1min\n d \n#cordee\ne\n")
    assert (one.values["line"], one.asks, one.time_s) == ("a b", SlotRequest(), None)
    assert (two.values["line"], two.asks, two.time_s, two.line) == ("d", SlotRequest(2, 0.5, 1000), 60.0, 5)
    assert three.asks == SlotRequest()


@pytest.mark.parametrize(
    "line", ["#cordee cores=0", "#cordee gpu=1", "#cordee memory=lots", "#cordee cores", "#cordee time=-1", "echo \0"]
)
def test_a_line_that_is_not_understood_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(DocumentError) as error:
        read(tmp_path, f"true\n{line}\n")
    assert error.value.line == 2
    assert error.value.allowed is not None


def test_only_line_ends_end_a_command_and_marks_of_other_systems_are_none_of_it(tmp_path: Path) -> None:
    tasks = read(tmp_path, "\ufeffecho a\u2028b\x0cc\r\necho d\n")
    assert [(task.values["line"], task.line) for task in tasks] == [("echo a\u2028b\x0cc", 1), ("echo d", 2)]


def test_an_array_script_runs_once_for_each_index(tmp_path: Path) -> None:
    tasks = read(tmp_path, "#!/bin/bash\n#SBATCH --time=1\n#SBATCH --array=1-5:2,9%2\necho $SLURM_ARRAY_TASK_ID\n")
    assert [task.values["line"].split("SLURM_ARRAY_TASK_ID=")[1].split()[0] for task in tasks] == ["1", "3", "5", "9"]
    assert "SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=9" in tasks[0].values["line"]
    with pytest.raises(DocumentError, match="indices"):
        read(tmp_path, "#!/bin/bash\n#SBATCH --array=5-1\ntrue\n")


ARRAY = """#!/bin/bash -l
#SBATCH --array=0-1%1
#SBATCH --cpus-per-task=2 --mem-per-cpu=300M
#SBATCH --gpus-per-task=1 -t 00:00:03 -p gpu
#SBATCH --output=out_%A_%a.txt -D /tmp --mail-type=END
echo $SLURM_CPUS_PER_TASK
"""


def test_tasks_of_an_array_have_what_the_script_asks_for_but_for_what_the_farm_was_given(tmp_path: Path) -> None:
    tasks = read(tmp_path, ARRAY)
    assert {(task.asks, task.time_s) for task in tasks} == {(SlotRequest(2, 1, 600 << 20), 3.0)}
    line = tasks[1].values["line"]
    assert "SLURM_CPUS_PER_TASK=2" in line
    assert line.endswith('; cd /tmp || exit 1; exec /bin/bash -l "$CORDEE_RUN_DIR/tasks/array.sh"')
    given = TaskDefaults(SlotRequest(1, 0, 5), 60.0, frozenset({"cores", "time"}))
    assert [(one.asks, one.time_s) for one in read_file(tmp_path / "tasks", "auto", given)] == [
        (SlotRequest(1, 1, 600 << 20), 60.0)
    ] * 2


def test_what_a_farm_does_not_do_of_a_batch_script_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text(ARRAY)
    array = array_in(tmp_path / "tasks", "auto")
    assert array is not None
    assert array.at_once == 1
    assert [one.partition(" ")[0] for one in array.unheeded] == [
        "--output=out_%A_%a.txt",
        "--partition=gpu",
        "--mail-type=END",
    ]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("##SBATCH --array=1-3\n#SBATCH --time=1", "no #SBATCH --array"),
        ("#SBATCH --time=1\ntrue\n#SBATCH --array=1-3", "no #SBATCH --array"),
        ("#SBATCH --array=1-3 --nodes=2", "several nodes"),
        ("#SBATCH --array=1-3%0", "indices"),
    ],
)
def test_a_batch_script_that_is_no_array_of_a_farm_is_refused(tmp_path: Path, header: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        read(tmp_path, f"#!/bin/bash\n{header}\nseed=$(($SLURM_ARRAY_TASK_ID - 1))\n")


def test_tasks_of_an_array_know_it_by_one_number(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("#!/bin/sh\n#SBATCH -a 0-20:10,3\ntrue\n")
    tasks = read_file(tmp_path / "tasks", "auto", TaskDefaults(array_job=700))
    shown = 'echo "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID $SLURM_ARRAY_TASK_STEP $SLURM_JOB_ID"'
    lines = [task.values["line"].partition("; exec")[0] for task in tasks]
    found = [
        subprocess.run(["sh", "-c", f"{line}; {shown}"], capture_output=True, text=True, env={}).stdout.split()
        for line in lines
    ]
    assert [one[:2] for one in found] == [["700", index] for index in ("0", "3", "10", "20")]
    assert len({one[3] for one in found}) == 4
    inside = subprocess.run(
        ["sh", "-c", f"{lines[1]}; {shown}"], capture_output=True, text=True, env={"SLURM_JOB_ID": "42"}
    )
    assert inside.stdout.split()[3] == "42"


def test_disbatch_prefixes_repeats_and_refuses_barriers(tmp_path: Path) -> None:
    tasks = read(tmp_path, "#DISBATCH PREFIX ( cd x; \n#DISBATCH SUFFIX  )\na\n#DISBATCH REPEAT 2 start 5 step 3 b\n")
    lines = [task.values["line"] for task in tasks]
    assert lines[0] == "export DISBATCH_TASKID=0; ( cd x;a )" or lines[0] == "export DISBATCH_TASKID=0; ( cd x; a )"
    assert ["DISBATCH_REPEAT_INDEX=5" in lines[1], "DISBATCH_REPEAT_INDEX=8" in lines[2], len(lines)] == [True, True, 3]
    with pytest.raises(DocumentError, match="BARRIER"):
        read(tmp_path, "a\n#DISBATCH BARRIER\nb\n")


def test_a_case_table_may_number_its_cases(tmp_path: Path) -> None:
    assert [task.values["line"] for task in read(tmp_path, "1 ./a -x 3\n2 ./a -x 4\n", "meta")] == [
        "export ID=1; ./a -x 3",
        "export ID=2; ./a -x 4",
    ]
    assert [task.values["line"] for task in read(tmp_path, "./a 1\n./a 2\n", "meta")] == ["./a 1", "./a 2"]


def test_a_list_reads_as_it_was_written(tmp_path: Path) -> None:
    tasks = [FarmTask(0, {"line": "ü"}), FarmTask(1, {"line": "b"}, SlotRequest(2, 0.25, 7), 3.5, 9)]
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "tasks-0.jsonl").write_text(lines_of(tasks))
    assert read_tasks(tmp_path) == tasks


def test_slots_are_lent_near_gpus_and_shares_fill_one_gpu_first() -> None:
    slots = SlotAllocator(lambda: NODE)
    whole = slots.lend("a", SlotRequest(1, 1))
    assert whole is not None
    half = [slots.lend(name, SlotRequest(1, 0.5)) for name in "bc"]
    assert [one and one.gpus for one in half] == [("GPU-1",), ("GPU-1",)]
    assert (whole.gpus, whole.cpus) == (("GPU-0",), frozenset({0}))
    assert {cpu for one in half if one for cpu in one.cpus or ()} == {2, 3}
    assert slots.lend("d", SlotRequest(1, 0.5)) is None
    assert slots.lend("e", SlotRequest(1, 0, 1000)) is not None
    slots.take_back("a")
    assert slots.lend("f", SlotRequest(1, 0, 1)) is None
    assert slots.lend("g", SlotRequest(1, 1)) is not None
    with pytest.raises(CannotGive, match="more than the node has"):
        slots.lend("h", SlotRequest(5))


def test_a_queue_gives_what_fits_keeps_what_could_not_end_and_refuses_what_fits_nowhere() -> None:
    queue = TaskQueue()
    queue.node("n0", NodeRoom(2, 0, 100))
    queue.node("n1", NodeRoom(2, 0, 100))
    queue.add([FarmTask(0, {}, time_s=50.0), *[FarmTask(n, {}) for n in range(1, 6)], FarmTask(6, {}, SlotRequest(3))])
    given = queue.give(10.0)
    assert sorted(task.id for tasks in given.values() for task in tasks) == [1, 2, 3, 4]
    assert {name: len(tasks) for name, tasks in given.items()} == {"n0": 2, "n1": 2}
    assert [task.id for task in queue.fits_nowhere()] == [6]
    node = next(name for name, tasks in given.items() if any(task.id == 1 for task in tasks))
    assert queue.ended(node, 1, 100.0) is not None
    assert queue.ended(node, 1, 100.0) is None
    assert [task.id for tasks in queue.give(10.0).values() for task in tasks] == [5]
    assert queue.too_late(10.0)
    assert not queue.too_late(60.0)
    assert sorted(task.id for task in queue.forget_nodes()) == [2, 3, 4, 5]


def test_a_queue_gives_out_no_more_at_once_than_an_array_says() -> None:
    queue = TaskQueue(at_once=3)
    for name in ("n0", "n1"):
        queue.node(name, NodeRoom(8, 0, 100))
    queue.add(FarmTask(number, {}) for number in range(8))
    given = queue.give(None)
    assert sum(map(len, given.values())) == 3
    assert not queue.give(None)
    node, tasks = next(iter(given.items()))
    queue.ended(node, tasks[0].id, 0.001)
    assert [task.id for tasks in queue.give(None).values() for task in tasks] == [3]


def test_a_replay_counts_each_end_once_and_tries_again_what_has_none() -> None:
    def end(task: int, number: int, outcome: str) -> list[object]:
        return TaskEnd(task, number, outcome, 0, None, "exited", 1.0, 5, 0.0, "").row()

    given = [
        {"event": "tasks_given", "time": "2026-01-01T00:00:00Z", "node": "n0", "tasks": [[0, 1], [1, 1], [2, 1]]},
        {
            "event": "tasks_ended",
            "time": "2026-01-01T00:00:01Z",
            "node": "n0",
            "ended": [end(0, 1, "done"), end(1, 1, "failed")],
        },
    ]
    states = replay([*given, given[1], {"event": "of tomorrow"}])
    assert (states.done, states.failed) == (1, 1)
    assert [states.of(task).state for task in range(4)] == ["done", "failed", "running", "waiting"]
    states.take({"event": "tasks_retried", "tasks": [0, 1, 2]})
    assert (states.done, states.failed, states.of(1).state, states.of(1).failures) == (1, 0, "waiting", {})
    assert not states.ends(TaskEnd(1, 1, "done", 0, None, "exited", 1.0))
    states.given(1, 2)
    assert states.ends(TaskEnd(1, 2, "done", 0, None, "exited", 1.0))
    assert (states.done, states.of(1).end and states.of(1).end.number) == (2, 2)


def test_the_script_of_an_array_is_kept_with_line_ends_that_shells_know(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(
        "#!/bin/bash\r\n#SBATCH --array=1\r\nif true; then\r\n  echo é\r\nfi\r\n".encode("utf-16")
    )
    (tmp_path / "kept.sh").write_text(text_of_list(tmp_path / "a.sh"))
    done = subprocess.run(["bash", tmp_path / "kept.sh"], capture_output=True, text=True, check=True)
    assert done.stdout == "é\n"
