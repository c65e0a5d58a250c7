"""Every fault of a document is told with file, line, what was given, what is allowed and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.core.errors import DocumentError

from .conftest import Faults, Load

HEAD = 'name = "a"\nrun = "python train.py"\n'
URL = "an address of this node"

WRONG = [
    # text after the head (which has two lines), line, text, given, a part of allowed, next
    ("nmae = 1\n", 3, "the document has no key nmae", "nmae", "name", "did you mean name?"),
    ("[need]\nnods = 2\n", 4, "[need] has no key nods", "nods", "nodes", "did you mean nodes?"),
    ("[need]\nzzz = 2\n", 4, "[need] has no key zzz", "zzz", "nodes", "remove zzz"),
    ("[vet]\nproto = 'x'\n", 4, "[vet] has no key proto", "proto", "protocol", "did you mean protocol?"),
    ("[data.corpus]\nfrom = '/x'\nform = 1\n", 5, "[data.corpus] has no key form", "form", "from", "did you mean from?"),
    ("[checkpoint]\npatern = 'x'\n", 4, "[checkpoint] has no key patern", "patern", "pattern", "did you mean pattern?"),
    ("[restart]\nretry = 1\n", 4, "[restart] has no key retry", "retry", "retries", "did you mean retries?"),
    ("[steps]\na = { rum = 'x' }\n", 4, "[steps.a] has no key rum", "rum", "run", "did you mean run?"),
    ("[test]\nrun = 'x'\nneeds = {}\n", 5, "[test] has no key needs", "needs", "need", "did you mean need?"),
    ("[slurm]\noption = []\n", 4, "[slurm] has no key option", "option", "options", "did you mean options?"),
    ("[sampling]\nintervall = 1\n", 4, "[sampling] has no key intervall", "intervall", "interval", "did you mean interval?"),
    ("[timeouts]\nconect = 1\n", 4, "[timeouts] has no key conect", "conect", "connect", "did you mean connect?"),
    ("[services.a]\nservice = 'mlflow'\nuse = 'x'\n", 5, "use is no key of [services.a]", "use", "service", 'service = "mlflow", or the like; `cordee service list` shows the catalogue'),
    ("[sweep]\nx = [1]\ngoal = 'min a'\nsampler = 'bayes'\n", 6, "sweep.sampler is not there", "bayes", "tpe, gp, cma and nsga learn", "change sweep.sampler"),
    ("[sweep]\nx = [1]\ngoal = 'min a'\nsampler = 'halving'\n", 6, "sweep.sampler is not there", "halving", "`halving = { first", "change sweep.sampler"),
    ("[sweep]\nx = [1]\n", 3, "sweep.goal is missing", None, "a value", "add `goal = ...`"),
    ("need = 3\n", 3, "need is not a table", 3, "a table", "change need"),
    ("code = 'frozen'\n", 3, "code is not one of its values", "frozen", '"live" or "snapshot"', "change code"),
    ("launch = 'mpi'\n", 3, "launch is not one of its values", "mpi", '"fork" or "srun"', "change launch"),
    ("environment = 3\n", 3, "environment is not a text in quotes", 3, "a text", "change environment"),
    ("setup = 3\n", 3, "setup is neither a text nor a list of texts", 3, "a list", "change setup"),
    ("[env]\nA = true\n", 4, "env.A is not the value of an environment variable", "***", "a number", "change env.A"),
    ("[env]\nCORDEE_X = '1'\n", 3, "env is wrong: CORDEE_X belongs to Cordée", None, "CORDEE_", "change env"),
    ("[need]\nnodes = '2'\n", 4, "need.nodes is not a whole number", "2", "without quotes", "change need.nodes"),
    ("[need]\nnodes = true\n", 4, "need.nodes is not a whole number", True, "a whole number", "change need.nodes"),
    ("[need]\nnodes = 0\n", 4, "need.nodes is too small", 0, "at least 1", "change need.nodes"),
    ("[need]\nnodes = 9999999\n", 4, "need.nodes is too large", 9999999, "at most 1000000", "change need.nodes"),
    ("[need]\nnodes = 2\nmin_nodes = 3\n", 3, "need is wrong: min_nodes = 3 is more than nodes = 2", None, "1 to 2", "change need"),
    ("[need]\nranks_per_node = 0\n", 4, "need.ranks_per_node is not a number of ranks", 0, '"gpu"', "change need.ranks_per_node"),
    ("[need]\nmemory = '64 cows'\n", 4, "need.memory is not a size", "64 cows", '"64GB"', "change need.memory"),
    ("[need]\ntime = 'soon'\n", 4, "need.time is not a duration", "soon", '"30min"', "change need.time"),
    ("[need]\ntime = 0\n", 4, "need.time is no time to run in", 0, "at least 1 s", "change need.time"),
    ("[need]\nmemory = 64\n", 4, "need.memory is no memory of a node: 64 bytes", 64, '"64 GB"', "change need.memory"),
    ("[need]\ngpu = 'memory > 2GB'\n", 4, "need.gpu holds 'memory > 2GB', which is not a GPU requirement", "memory > 2GB", "memory >= 24GB", "change need.gpu"),
    ("[need]\ngpu = 'memory >= x'\n", 4, "need.gpu is not a size", "memory >= x", "64GB", "change need.gpu"),
    ("[vet]\nmodules = ['torch', 'no-module']\n", 4, "vet.modules[1] is not the name of a Python module", "no-module", "import", "change vet.modules[1]"),
    ("[vet]\nmax_load = 0\n", 4, "vet.max_load is too small", 0, "more than 0", "change vet.max_load"),
    ("[data.corpus]\nto = 'auto'\n", 3, "data.corpus.from is missing", None, "a value", "add `from = ...`"),
    ("[data.corpus]\nfrom = 'x'\nto = 'disk'\n", 5, "data.corpus.to is not one of its values", "disk", '"memory"', "change data.corpus.to"),
    ("[checkpoint]\npattern = '../x'\n", 4, "checkpoint.pattern is not a pattern below the folder", "../x", "wildcards", "change checkpoint.pattern"),
    ("[checkpoint]\npath = ''\n", 4, "checkpoint.path is not a path", "", "a folder", "change checkpoint.path"),
    ("[checkpoint]\nresume = '--resume'\n", 4, "checkpoint.resume does not say where the checkpoint's path goes", "--resume", "{checkpoint}", "change checkpoint.resume"),
    ("[checkpoint]\nsignal = 'KILL'\n", 4, "checkpoint.signal is not such a signal", "KILL", "USR1", "change checkpoint.signal"),
    ("[checkpoint]\nevery = 0\n", 4, "checkpoint.every is too small", 0, "more than 0", "change checkpoint.every"),
    ("[restart]\nretries = -1\n", 4, "restart.retries is too small", -1, "at least 0", "change restart.retries"),
    ("[restart]\nbackoff = '-1s'\n", 4, "restart.backoff is not a duration", "-1s", "seconds", "change restart.backoff"),
    ("[sampling]\ninterval = '10ms'\n", 4, "sampling.interval is too small", "10ms", "at least 0.1", "change sampling.interval"),
    ("[timeouts]\nlost = 1\n", 3, "timeouts is wrong: lost = 1 s is too short: ranks need kill = 0.5 s to end, and 1 s before that without a word of the supervisor (heartbeat = 0.1 s)", None, "a longer lost", "change timeouts"),
    ("[metrics]\nadapters = ['wandbx']\n", 4, "metrics.adapters[0] is not one of its values", "wandbx", '"wandb", "tensorboard", "mlflow", "device_mesh" or "megatron"', "change metrics.adapters[0]"),
    ("[[metrics.scrape]]\nurl = 'http://127.0.0.1:1/m'\nevry = 1\n", 5, "[metrics.scrape[0]] has no key evry", "evry", "every", "did you mean every?"),
    ("[[metrics.scrape]]\nurl = 'http://10.0.0.1:1/m'\n", 4, "metrics.scrape[0].url does not lead to the node itself", "http://10.0.0.1:1/m", URL, "change metrics.scrape[0].url"),
    ("[[metrics.scrape]]\nurl = 'https://localhost/m'\n", 4, "metrics.scrape[0].url is not a URL that begins with http://", "https://localhost/m", URL, "change metrics.scrape[0].url"),
    ("[[metrics.scrape]]\nurl = 'http://127.0.0.1:{prt}/m'\n", 4, "metrics.scrape[0].url holds {prt}, which stands for nothing here", "http://127.0.0.1:{prt}/m", URL, "change metrics.scrape[0].url"),
    ("[[metrics.scrape]]\nurl = 'http://127.0.0.1:{port}/m'\n", 3, "metrics.scrape[0] is wrong: {port} in url needs port", None, "port = 8000", "change metrics.scrape[0]"),
    ("[steps]\na = { after = 'b' }\n", 3, "steps is wrong: a comes after 'b', which is no other step", None, "a", "change steps"),
    ("[sweep]\nlr = { a = 1 }\n", 4, "sweep.lr is not a range of a parameter", None, "log 1e-5..1e-1", "change sweep.lr"),
    ("on = 3\n", 3, "on is not a table", 3, "[on.local]", "write [on.CLUSTER] above the keys that differ there"),
    ("[on]\nlocal = 3\n", 4, "on.local is not a table", 3, "a table", "write [on.CLUSTER] above the keys that differ there"),
    ("[on.local]\nneed = { nods = 1 }\n", 4, "[on.local.need] has no key nods", "nods", "nodes", "did you mean nodes?"),
    ("[on.alps.need]\nnodes = 'x'\n", 4, "on.alps.need.nodes is not a whole number", "x", "a whole number", "change on.alps.need.nodes"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "says", "given", "allowed", "what"), WRONG, ids=[case[2] for case in WRONG])
def test_a_fault_says_where_and_what_and_what_to_do(
    faults: Faults, tmp_path: Path, text: str, line: int, says: str, given: object, allowed: str, what: str
) -> None:
    (found,) = faults(HEAD + text)
    assert (found.file, found.line) == (str(tmp_path / "cordee.toml"), line)
    assert found.text == says
    assert found.given == given or given is None
    assert allowed in (found.allowed if isinstance(found.allowed, str) else list(found.allowed))
    assert found.next == what
    assert found.severity == "error"


@pytest.mark.parametrize(
    ("text", "says", "next_step"),
    [
        ('run = "x"\n', "name is missing", "add `name = ...`"),
        ('name = "a"\n', "run is missing", "add `run = ...`"),
        ('name = "a/b"\nrun = "x"\n', "name is not a valid name", "change name"),
        ('name = "-a"\nrun = "x"\n', "name is not a valid name", "change name"),
        (f'name = "{"a" * 65}"\nrun = "x"\n', "name is not a valid name", "change name"),
        ('name = "a\\n"\nrun = "x"\n', "name is not a valid name", "change name"),
        ('name = "a"\nrun = ""\n', "run is empty", "change run"),
        ('name = "a"\nrun = []\n', "run is empty", "change run"),
        ('name = "a"\nrun = ["x", 1]\n', "run is not a command", "change run"),
        ('name = "a"\nrun = "echo \'x"\n', "run cannot be split into words: no closing quotation", "change run"),
        ('name = "a"\nrun = "x\\u0000"\n', "run holds a NUL character, which no command can", "change run"),
    ],
)
def test_name_and_run_are_required_and_checked(faults: Faults, text: str, says: str, next_step: str) -> None:
    (found,) = faults(text)
    assert (found.text, found.next) == (says, next_step)
    assert found.allowed
    assert found.line


def test_all_faults_of_a_document_are_told_at_once(faults: Faults) -> None:
    text = (
        'nmae = "a"\n[need]\nnodes = "x"\n[vet]\nmax_load = -1\n[on.local.need]\nnodes = 0\n'
        "[on.alps]\nneed = { tme = 1 }\n"
    )
    found = {(finding.line, finding.text) for finding in faults(text)}
    assert found == {
        (1, "the document has no key nmae"),
        (1, "name is missing"),
        (1, "run is missing"),
        (3, "need.nodes is not a whole number"),
        (5, "vet.max_load is too small"),
        (7, "on.local.need.nodes is too small"),
        (9, "[on.alps.need] has no key tme"),
    }


def test_the_error_itself_is_the_first_fault_and_its_text_shows_all(load: Load) -> None:
    with pytest.raises(DocumentError) as caught:
        load("")
    assert caught.value.text == "name is missing (and 1 more fault)"
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 faults"
    assert [line.rpartition(": ")[2] for line in lines if ": error: " in line] == ["name is missing", "run is missing"]


def test_a_key_that_is_called_like_a_type_keeps_its_name(faults: Faults) -> None:
    (found,) = faults(HEAD + "[env]\nint = [1]\n")
    assert (found.line, found.text) == (4, "env.int is not the value of an environment variable")


def test_every_table_of_the_design_is_accepted(load: Load, tmp_path: Path) -> None:
    (tmp_path / "protocol.yaml").write_text("name: x\nevals: [{name: load, type: host.load}]\n")
    job = load(
        """
name = "char-gpt"
run = "python train.py --lr {lr}"
environment = "env.toml"
setup = ["module load cuda"]
code = "live"
[need]
nodes = 2
spare_nodes = 1
min_nodes = 2
gpus_per_node = 4
ranks_per_node = "gpu"
cpus_per_rank = 16
memory = "64GB"
gpu = "memory >= 24GB, capability >= 8.0"
time = "72h"
account = "a123"
[vet]
protocol = "protocol.yaml"
[data.corpus]
from = "/store/corpus"
to = "auto"
[checkpoint]
path = "checkpoints"
pattern = "step-*"
resume = "--resume {checkpoint}"
signal = "USR1"
every = "30min"
grace = "2min"
[sweep]
lr = "log 1e-5..1e-1"
goal = "min loss"
trials = 64
[steps]
prepare = { run = "python prepare.py", gpus = 0 }
train = { after = "prepare" }
[test]
run = "python train.py --steps 20"
[slurm]
options = ["--exclusive"]
[on.local]
need = { gpus_per_node = 0 }
"""
    ).job
    assert job.run == ("python", "train.py", "--lr", "{lr}")
    assert job.need.memory == 64_000_000_000
    assert job.need.time == 72 * 3600
    assert job.need.gpus_per_node == 0
    assert job.checkpoint is not None
    assert (job.checkpoint.every, job.checkpoint.grace) == (1800, 120)
    assert job.checkpoint.resume == ("--resume", "{checkpoint}")
    assert job.parameters == {"lr", "number"}
    assert job.steps["train"].after == ("prepare",)


def test_a_job_is_frozen(load: Load) -> None:
    job = load(HEAD).job
    with pytest.raises(ValueError, match="frozen"):
        job.need.nodes = 3


def test_a_command_as_a_list_is_not_split(load: Load) -> None:
    assert load('name = "a"\nrun = ["bash", "-c", "a | b"]\n').job.run == ("bash", "-c", "a | b")
