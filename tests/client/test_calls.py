"""`cordee.log` and `cordee.stopping` in a process of their own, in and outside a run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from cordee.wire.channel import ChannelReader, create_channel


@pytest.fixture
def channel(tmp_path):
    path = tmp_path / "1-0.channel"
    create_channel(path, stop_wait_s=0.3)
    return path


def call(program: str, channel=None, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **more}
    if channel is not None:
        env["CORDEE_CHANNEL"] = str(channel)
    return subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False)


def test_outside_a_run_nothing_happens_and_nothing_is_said():
    done = call("import cordee\ncordee.log(step=1, loss=object())\nassert cordee.stopping(1) is False")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("real")
def test_numbers_of_every_kind_arrive(channel):
    done = call(
        "import cordee, fractions, numpy, torch\n"
        "cordee.log(step=5, steps=10, a=1, b=True, c=numpy.float32(0.5), d=torch.tensor(2.0), e=fractions.Fraction(1, 4))",
        channel,
    )
    assert done.returncode == 0, done.stderr
    reader = ChannelReader(channel)
    (event,), _ = reader.read()
    assert (event[2], event[3]) == (5, {"a": 1.0, "b": 1.0, "c": 0.5, "d": 2.0, "e": 0.25})
    assert (reader.step, reader.total) == (5, 10)


def test_what_is_no_number_is_counted_and_said_once_and_never_raises(channel):
    done = call("import cordee\nfor step in range(3): cordee.log(step=step, loss=0.1, text='no', none=None)", channel)
    assert done.returncode == 0
    assert done.stderr.count("<string>:2: RuntimeWarning: cordee.log: the value of") == 2
    reader = ChannelReader(channel)
    events, _ = reader.read()
    assert [event[3] for event in events] == [{"loss": 0.1}] * 3
    assert reader.dropped == 6


FORMS = {
    '{"loss": 0.5}, step=3': {"loss": 0.5},
    '{"loss": 0.5}, 3': {"loss": 0.5},
    '3, {"loss": 0.5}': {"loss": 0.5},
    "3, loss=0.5": {"loss": 0.5},
    '{"loss": 0.5, "step": 3}': {"loss": 0.5},
    '{"loss": 0.5}, step=torch.tensor(3), lr=0.1': {"loss": 0.5, "lr": 0.1},
    "loss=torch.tensor(0.5, requires_grad=True), step=3": {"loss": 0.5},
    '{"loss": torch.tensor(0.5, requires_grad=True), "x": numpy.array(2.0)}, step=3': {"loss": 0.5, "x": 2.0},
    '{"train": {"loss": 0.5}, "val": {"loss": {"a": 1}}}, step=3': {"train.loss": 0.5, "val.loss.a": 1.0},
    "data=0.5, given=1, step=3": {"data": 0.5, "given": 1.0},
    "collections.OrderedDict(loss=0.5), step=numpy.int64(3)": {"loss": 0.5},
}


@pytest.mark.usefixtures("real")
def test_numbers_may_come_in_a_dict_and_the_step_by_place(channel):
    calls = "".join(f"cordee.log({arguments})\n" for arguments in FORMS)
    done = call("import cordee, collections, numpy, torch\n" + calls, channel)
    assert (done.returncode, done.stderr) == (0, "")
    reader = ChannelReader(channel)
    events, _ = reader.read()
    assert [event[3] for event in events] == list(FORMS.values())
    assert {event[2] for event in events} == {3}
    assert reader.dropped == 0


BAD_VALUES = {
    '{"loss": "high", "lr": 0.1, 7: 0.5}, step=3': 2,
    '{"weights": numpy.zeros(2), "lr": 0.1}, step=3': 1,
    '{"big": 10**400, "lr": 0.1}, step=3': 1,
    '"lr", 0.1, 3, lr=0.1': 2,
    "[0.1], step=3, lr=0.1": 1,
    '{"lr": 0.1}, step="three"': 1,
    '{"lr": 0.1}, step=10**400': 1,
    '{"lr": 0.1}, steps="many", step=3': 1,
}


def test_nothing_that_cordee_log_is_given_ends_a_training(channel):
    calls = "".join(f"cordee.log({arguments})\n" for arguments in BAD_VALUES)
    program = f"import cordee, numpy, warnings\nwarnings.simplefilter('error')\n{calls}print('went on')"
    done = call(program, channel)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr
    reader = ChannelReader(channel)
    events, _ = reader.read()
    assert [event[3] for event in events] == [{"lr": 0.1}] * len(BAD_VALUES)
    assert reader.dropped == sum(BAD_VALUES.values())


def test_threads_may_log_at_once(channel):
    program = (
        "import cordee, threading\n"
        "def work(name):\n    for step in range(500): cordee.log(step=step, **{name: step})\n"
        "threads = [threading.Thread(target=work, args=(f't{n}',)) for n in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]"
    )
    assert call(program, channel).returncode == 0
    reader = ChannelReader(channel)
    events, _ = reader.read(10_000)
    assert len(events) + reader.dropped == 2000
    assert len(events) > 1900


def test_a_forked_worker_says_that_it_is_not_recorded(channel):
    program = (
        "import cordee, os\ncordee.log(step=1, a=1)\n"
        "pid = os.fork()\nif pid == 0:\n    cordee.log(step=2, a=2); os._exit(0)\nos.waitpid(pid, 0)\ncordee.log(step=3, a=3)"
    )
    done = call(program, channel)
    assert "forked" in done.stderr
    events, _ = ChannelReader(channel).read()
    assert [event[2] for event in events] == [1, 3]


def test_stopping_waits_for_an_answer_and_gives_up_in_time(channel):
    ChannelReader(channel).request_stop()
    done = call(
        "import cordee, time\nt = time.monotonic()\nprint(cordee.stopping(4), round(time.monotonic() - t, 1))", channel
    )
    answer, seconds = done.stdout.split()
    assert answer == "False"
    assert 0.2 <= float(seconds) < 60


def test_stopping_is_true_from_the_agreed_step_on(channel):
    reader = ChannelReader(channel)
    reader.request_stop()
    reader.set_stop_step(6)
    done = call("import cordee\nprint([cordee.stopping(step) for step in (5, 6, 7)])", channel)
    assert done.stdout.strip() == "[False, True, True]"


def test_a_missing_channel_is_said_once_and_harms_nothing(tmp_path):
    done = call("import cordee\ncordee.log(step=1, a=1)\ncordee.log(step=2, a=1)", tmp_path / "gone")
    assert done.returncode == 0
    assert done.stderr.count("cannot be opened") == 1
