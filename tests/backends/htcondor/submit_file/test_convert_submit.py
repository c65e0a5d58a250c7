"""A submit file becomes a document that does the same, and what it cannot say is listed.

The files in `files/` were given to `condor_submit -dry-run` of HTCondor 23.9, which takes all of them.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordee.backends.htcondor.submit_file.convert import convert, read_text
from cordee.backends.htcondor.submit_file.description import argument_words, is_submit_file, variables_of
from cordee.backends.htcondor.submit_file.reader import READER
from cordee.core.errors import DocumentError
from cordee.job.init import write_draft
from cordee.job.load import load_job
from cordee.systems.trials.node.commands import filled_in

FILES = Path(__file__).parent / "files"
SUBMIT_FILES = sorted(FILES.glob("*.sub"))
# What condor_submit -dry-run says the program and its arguments are, of the first and of the last job.
ARGUMENTS = {
    "files.sub": ["./segment --in scans/a.dat --threads 4", "./segment --in scans/b.dat --threads 4"],
    "inline.sub": ["sh infer.sh small a", "sh infer.sh large a"],
    "rates.sub": [
        "/usr/bin/python3 train.py --lr 0.1 --warmup 100",
        "/usr/bin/python3 train.py --lr 0.003 --warmup 100",
    ],
    "seeds.sub": ["python train.py --seed 0 --name 'run 0'", "python train.py --seed 24 --name 'run 24'"],
    "table.sub": ["bash table.sh 0.1 64 sgd", "bash table.sh 0.001 256 'adam with decay'"],
    "words.sub": ["python train.py --model resnet", "python train.py --model convnext"],
}
LOADED = {  # run, [need] but for its memory, set-up lines, [env]
    "gpu-lab.sub": (
        "python train.py --data ./mnist --epochs 20 --lr 0.003",
        {"gpus_per_node": 1, "cpus_per_rank": 4, "gpu": "capability >= 7.5, memory >= 16GiB", "disk": "20GiB"},
        ["tar -xzf mnist.tar.gz", "export HOME=$_CONDOR_SCRATCH_DIR"],
        {"OMP_NUM_THREADS": "4"},
    ),
    "conda-pack.sub": (
        "python train.py --epochs 90 --out out-0",
        {
            "gpus_per_node": 2,
            "ranks_per_node": 2,
            "cpus_per_rank": 4,
            "gpu": "capability >= 8, memory >= 40000MiB",
            "disk": "30GiB",
        },
        ["mkdir resnet", "tar -xzf resnet.tar.gz -C resnet", ". resnet/bin/activate"],
        {"WANDB_MODE": "offline", "GREETING": "say 'hi' to all", "NOTE": 'a"b', "ENVDIR": "resnet"},
    ),
    "checkpoints.sub": (
        "bash long.sh train.py --save state.pt",
        {"gpus_per_node": 1, "cpus_per_rank": 8, "time": "3h", "disk": "60GiB"},
        [],
        {},
    ),
    "several.sub": ("python train.py --size small", {"cpus_per_rank": 1, "disk": "1GiB"}, [], {}),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the files."""
    return Path(shutil.copytree(FILES, tmp_path / "files"))


def of(text: str, folder: Path = FILES):
    return convert(f"executable = train.py\n{text}\n", folder / "job.sub")


def why(found, text: str) -> str:
    return next(one.why for one in found.left if text in one.text)


@pytest.mark.parametrize("name", sorted(LOADED))
def test_a_submit_file_becomes_what_is_expected(name):
    found = convert(read_text(FILES / name), FILES / name)
    need = {key: value for key, value in found.need.items() if key != "memory"}
    assert (found.run, need, found.setup, found.env) == LOADED[name]


def values_of(found, folder: Path) -> list[dict[str, str]]:
    """Return what names in braces stand for in each job of a document."""
    if found.farm:
        lines = (folder / found.farm["file"]).read_text().splitlines()
        return [{"line": line} for line in lines if line.strip() and not line.startswith("#")]
    parameter = next(key for key in found.sweep if key not in ("goal", "jobs", "cores", "memory", "gpus"))
    return [{parameter: str(value)} for value in found.sweep[parameter]]


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_each_job_of_a_queue_has_the_arguments_that_condor_submit_gives_it(name, tmp_path):
    found = convert(read_text(FILES / name), FILES / name)
    run = shlex.split(found.run) if isinstance(found.run, str) else found.run
    jobs = values_of(found, FILES)
    shown = []
    for values in (jobs[0], jobs[-1]):
        words = list(filled_in(run, values))
        if words[0] == "bash" and words[1] == "-c":
            words[2] = words[2].replace("exec ", 'exec printf "%s\\n" ')
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            words = done.stdout.splitlines()
        shown.append(words[2:] if words[0] == "env" else words)
    assert shown == [shlex.split(line) for line in ARGUMENTS[name]]


@pytest.mark.parametrize("path", SUBMIT_FILES, ids=lambda path: path.name)
def test_every_generated_document_loads_and_lists_what_it_leaves(path, folder, tmp_path):
    written = write_draft(tmp_path, folder / path.name)
    job = load_job(written.path, environ={"XDG_CONFIG_HOME": str(tmp_path)}).job
    text = written.path.read_text()
    assert job.code == "snapshot"
    assert "@@" not in text
    assert all(f"{left.line:>4}  " in text for left in written.left)
    assert "spare_nodes" not in text


@pytest.mark.parametrize("path", SUBMIT_FILES, ids=lambda path: path.name)
def test_every_command_of_a_file_is_carried_over_or_listed(path):
    found = convert(read_text(path), path)
    lines = {left.line for left in found.left}
    carried = [
        "universe",
        "container_image",
        "docker_image",
        "+singularityimage",
        "executable",
        "arguments",
        "request_cpus",
        "request_memory",
        "request_disk",
        "request_gpus",
        "should_transfer",
        "environment",
        "max_retries",
        "gpus_minimum",
        "job",
        "batch_name",
        "kill_sig",
        "epochs",
        "allowed",
        "transfer_executable",
    ]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        word = line.strip().lower()
        statement = "=" in word and not line.startswith((" ", "#"))
        flat = word.startswith(("transfer_input_files", "require_gpus"))
        if statement and not flat and not word.startswith(tuple(carried)):
            assert number in lines, line


def test_jobs_of_a_queue_are_as_many_jobs_of_the_scheduler():
    found = of("arguments = $(Process)\nrequest_cpus = 2\nrequest_memory = 4GB\nqueue 3")
    assert found.sweep == {"process": [0, 1, 2], "goal": "min loss", "jobs": 3, "cores": 2, "memory": "4GiB"}
    assert "name in [sweep] goal" in why(found, "queue 3")
    assert found.run == "python train.py {process}"


@pytest.mark.parametrize("rest", ["queue", "queue 1", ""])
def test_one_job_is_no_sweep_and_its_number_is_0(rest):
    found = of(f"arguments = --seed $(Process)\n{rest}")
    assert (found.run, found.sweep, found.farm) == ("python train.py --seed 0", {}, {})


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("queue x in (a, b c)", ["a", "b", "c"]),
        ("queue x in a b", ["a", "b"]),
        ("queue x in [1:] (a, b c)", ["b", "c"]),
        ("queue x from (\n  a\n# none\n\n  b\n)", ["a", "b"]),
        ("queue x matching files scans/*.dat", ["scans/a.dat", "scans/b.dat"]),
        ("queue x matching scans/*", ["scans/a.dat", "scans/b.dat"]),
        ("QUEUE 2 x in (a b)", ["a", "b"]),
    ],
)
def test_items_are_values_of_a_sweep(statement, values):
    found = of(f"arguments = --x $(X)\n{statement}")
    assert (found.run, found.sweep["x"]) == ("python train.py --x {x}", values)


def test_a_list_of_one_item_is_one_job_with_its_value():
    found = of("arguments = --x $(x)\nqueue x in (a)")
    assert (found.run, found.sweep) == ("python train.py --x a", {})


def test_a_variable_whose_name_a_sweep_needs_itself_gets_another():
    found = of("arguments = --seed $(seed)\nqueue seed in (1, 2)")
    assert (found.run, found.sweep["seed_value"]) == ("python train.py --seed {seed_value}", ["1", "2"])


def test_jobs_that_differ_in_nothing_are_one_and_that_is_said():
    found = of("queue 10")
    assert not found.sweep
    assert "differ in nothing" in why(found, "queue 10")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("queue x from list.sh |", "what a command prints"),
        ("queue x from nothing-here.txt", "cannot be read here"),
        ("queue x matching nothing/*", "matches nothing here"),
        ("queue 2 x in (a b)", "each item only once"),
        ("queue x from settings.txt", "begin with # are no tasks"),
        ("queue 2 x in (a b)\nqueue 3", "later `queue`"),
    ],
)
def test_what_a_queue_says_and_a_document_cannot_is_said(statement, words):
    found = of(f"arguments = $(x)\n{statement}")
    assert any(words in one.why for one in found.left)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one two 'three", ["one", "two", "'three"]),
        (r"--say \"hi\"", ["--say", '"hi"']),
        ("\"one 'two  three' four\"", ["one", "two  three", "four"]),
        ('"3 simple arguments"', ["3", "simple", "arguments"]),
        ("\"\"\"quoted\"\" it''s x'a''b'\"", ['"quoted"', "its", "xa'b"]),
        ("\"'' end\"", ["", "end"]),
        ("", []),
    ],
)
def test_arguments_are_words_in_both_syntaxes(text, words):
    assert argument_words(text) == words


def test_variables_are_read_in_both_syntaxes():
    assert variables_of("A=1; B=x y;C=") == {"A": "1", "B": "x y", "C": ""}
    assert variables_of("\"A=1 B='x y' C=''\"") == {"A": "1", "B": "x y", "C": ""}


def test_macros_are_filled_in_with_their_defaults_and_what_they_were_before():
    found = of("base = a\nbase = $(base)b\narguments = $(base) $(none:c) $(DOLLAR)HOME $(gone)\nqueue")
    assert found.run == "python train.py ab c '$HOME'"
    assert "not defined" in why(found, "$(gone)")


def test_a_default_may_be_a_macro_and_one_that_has_itself_ends():
    assert of("arguments = $(a:$(b:z))\nqueue").run == "python train.py z"
    assert of("a = $(b)$(b)\nb = $(a)$(a)\narguments = $(a)\nqueue").run


@pytest.mark.parametrize("text", ["$ENV(HOME)", "$Fn(x)", "$$(Memory)", "$RANDOM_INTEGER(1,5)"])
def test_what_only_condor_submit_can_compute_is_listed(text):
    assert "only HTCondor fills in" in why(of(f"arguments = {text}\nqueue"), text)


@pytest.mark.parametrize("word", ["if defined x", "include : other.sub", "else", "Include command : ./make"])
def test_conditions_and_included_files_are_refused_by_name(word):
    with pytest.raises(DocumentError) as caught:
        of(f"request_cpus = 1\n{word}\nqueue")
    assert f"`{word.split()[0].lower()}` is decided by condor_submit" in caught.value.findings[0].text
    assert caught.value.findings[0].line == 3


@pytest.mark.parametrize(
    ("line", "memory"),
    [("2048", "2GiB"), ("1.5GB", "1536MiB"), ("16 GB", "16GiB"), ("500m", "500MiB"), ("2T", "2TiB")],
)
def test_memory_is_read_as_condor_submit_reads_it(line, memory):
    assert of(f"request_memory = {line}\nqueue").need["memory"] == memory


@pytest.mark.parametrize(
    "command", ["request_memory = MAX({2048, 1024})", "request_cpus = $$(Cpus)", "max_retries = x"]
)
def test_what_is_an_expression_is_listed(command):
    assert any(one.text.startswith(command.split()[0]) for one in of(f"{command}\nqueue").left)


def test_how_a_job_is_stopped_and_started_again_is_carried_over():
    found = of("job_max_vacate_time = 600\nkill_sig = SIGUSR1\nmax_retries = 2\nqueue")
    assert (found.checkpoint, found.restart) == ({"grace": "10min", "signal": "USR1"}, {"retries": 2})


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("+WantGPULab = true", "[htcondor] attributes"),
        ("MY.Project = 1", "[htcondor] attributes"),
        ('+GPUJobLength = "long"', "of [classes]"),
        ("requirements = HasAVX2", "[htcondor] requirements"),
        ("container_image = docker://$$(Image)", "image = "),
        ("universe = parallel", "only the universes"),
        ("universe = container", "names no image"),
        ("universe = Docker\ndocker_image =", "names no image"),
        ("checkpoint_exit_code = 85", "continues a run by itself"),
        ("transfer_input_files = a.txt, b/c.txt", "at its own path"),
        ("transfer_input_files = /data/x", "outside of the job's folder"),
        ("transfer_output_files = out", "comes home"),
        ("frobnicate = 1", "no counterpart"),
        ("environment = CORDEE_X=1", "CORDEE_"),
        ("these are no statements", "no statement"),
    ],
)
def test_what_is_not_carried_over_is_said_by_name(command, words):
    found = of(f"{command}\nqueue")
    assert any(words in one.why for one in found.left), found.left


def test_a_macro_that_something_uses_is_no_command_of_its_own():
    assert of("epochs = 9\narguments = $(epochs)\nqueue").left == []


def script(tmp_path: Path, body: str, arguments: str = "a b"):
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{body}\n")
    return convert(f"executable = run.sh\narguments = {arguments}\nqueue\n", tmp_path / "job.sub")


@pytest.mark.parametrize(
    ("body", "run", "setup"),
    [
        ("module load x\npython train.py $1 $2", "python train.py a b", ["module load x"]),
        ('python train.py "$@"', "python train.py a b", []),
        ("exec ./train --in ${2}", "./train --in b", []),
        ("torchrun --standalone train.py $@", "python train.py a b", []),
        ("python train.py; rm -r data", "bash run.sh a b", []),
        ("shift\npython train.py $1", "bash run.sh a b", []),
        ("if [ $1 = a ]; then python train.py; fi", "bash run.sh a b", []),
        ("python prepare.py\npython train.py", "bash run.sh a b", []),
        ("echo hello", "bash run.sh a b", []),
        ("tar xf $1.tar\npython train.py $#", "bash run.sh a b", []),
    ],
)
def test_a_script_is_taken_apart_where_nothing_of_it_is_lost(tmp_path, body, run, setup):
    found = script(tmp_path, body)
    assert (found.run, found.setup) == (run, setup)


def test_one_process_with_several_gpus_is_told_of_no_world():
    found = of("request_gpus = 2\nrequest_cpus = 4\nqueue")
    assert found.run.startswith("env -u RANK ")
    assert found.need == {"gpus_per_node": 2, "ranks_per_node": 1, "cpus_per_rank": 4}


def test_a_folder_with_one_submit_file_is_enough(tmp_path):
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "htcondor").mkdir()
    (tmp_path / "htcondor/train.sub").write_text("executable = train.py\nqueue\n")
    written = write_draft(tmp_path)
    assert written.source == tmp_path / "htcondor/train.sub"
    assert "train.sub is the job script" in written.notes[0]


def test_a_file_of_any_name_is_read_where_it_is_named(tmp_path):
    (tmp_path / "job.txt").write_text("executable = /bin/date\nqueue\n")
    assert "/bin/date" in write_draft(tmp_path, tmp_path / "job.txt").path.read_text()


def test_where_there_is_an_sbatch_script_too_that_is_taken_and_the_other_is_named(tmp_path):
    (tmp_path / "a.sub").write_text("executable = train.py\nqueue\n")
    (tmp_path / "z.sbatch").write_text("#!/bin/bash\n#SBATCH -N 1\npython train.py\n")
    written = write_draft(tmp_path)
    assert (written.source or Path()).name == "z.sbatch"
    assert any("a.sub" in note for note in written.notes)


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/bash\nqueue 1\n",
        "#SBATCH -N 1\nexecutable = x\n",
        "import queue\nqueue = queue.Queue()\nexecutable = 1\n",
        "name = 1\n",
        "",
    ],
)
def test_what_is_no_submit_file_is_taken_for_none(text, tmp_path):
    assert not is_submit_file(text)
    (tmp_path / "x.sub").write_text(text)
    assert READER.find(tmp_path) == []
    with pytest.raises(DocumentError, match="is no submit file"):
        READER.convert(tmp_path / "x.sub")


@given(
    st.lists(
        st.sampled_from([*"abx$()=,'\"\\ \n@{}|;", "$(x)", "queue ", " in ", " from ", "(", "arguments = ", "x = "])
    )
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_text_is_converted_or_refused(pieces):
    try:
        found = of("".join(pieces))
    except DocumentError:
        return
    assert found.run


@pytest.mark.parametrize(
    ("command", "image"),
    [
        ("container_image = docker://a/b:1", "docker://a/b:1"),
        ("docker_image = debian:12", "docker://debian:12"),
        ('+SingularityImage = "/cvmfs/a.sif"', "/cvmfs/a.sif"),
        ('+SingularityImage = "osdf:///x/a.sif"', "osdf:///x/a.sif"),
    ],
)
def test_an_image_becomes_an_environment_that_is_written_beside_the_document(command, image, tmp_path):
    (tmp_path / "job.sub").write_text(f"executable = train.py\n{command}\nqueue\n")
    written = write_draft(tmp_path, tmp_path / "job.sub")
    job = load_job(written.path, environ={"XDG_CONFIG_HOME": str(tmp_path)}).job
    assert job.environment == "env.toml"
    assert tomllib.loads((tmp_path / "env.toml").read_text()) == {"image": image}
    assert not any(image in left.text for left in written.left)


@pytest.mark.parametrize("command", ["container_image = docker://a", '+SingularityImage = "/cvmfs/a.sif"'])
def test_a_container_with_an_image_is_carried_over_whole(command):
    assert of(f"universe = container\n{command}\nqueue").left == []


def test_an_environment_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "env.toml").write_text("mine")
    (tmp_path / "job.sub").write_text("executable = train.py\ncontainer_image = docker://a\nqueue\n")
    written = write_draft(tmp_path, tmp_path / "job.sub")
    assert (tmp_path / "env.toml").read_text() == "mine"
    assert any("write an EDF" in left.why for left in written.left)
