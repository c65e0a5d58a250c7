"""Where values come from, which one wins, and what happens when a document cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordee.core.errors import DocumentError, UsageError
from cordee.job.load import load_job

from .conftest import Faults, Load

HEAD = 'name = "a"\nrun = "python train.py"\n'


def _profile(tmp_path: Path, text: str, folder: str = "clusters", name: str = "local") -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / f"{name}.toml").write_text(text)


def test_the_stronger_source_wins_and_each_value_remembers_its_own(load: Load, tmp_path: Path) -> None:
    _profile(tmp_path, "[defaults.need]\naccount = 'site'\npartition = 'site'\nqos = 'site'\nconstraint = 'site'\n")
    (tmp_path / "config/cordee").mkdir(parents=True)
    (tmp_path / "config/cordee/defaults.toml").write_text("[need]\npartition = 'user'\nqos = 'user'\nnodes = 9\n")
    text = HEAD + "[need]\nqos = 'document'\nnodes = 8\nspare_nodes = 8\nmin_nodes = 1\n[on.local.need]\nnodes = 7\n"
    loaded = load(text, {"CORDEE_NEED_SPARE_NODES": "6", "CORDEE_NEED_TIME": "2h"}, flags={"need.time": "3h"})
    need = loaded.job.need
    assert (need.constraint, need.partition, need.qos) == ("site", "user", "document")
    assert (need.account, need.nodes, need.spare_nodes, need.time) == ("site", 7, 6, 3 * 3600)
    origins = {key.partition(".")[2]: str(origin) for key, origin in loaded.provenance.items() if "." in key}
    assert origins == {
        "account": f"site profile {tmp_path}/clusters/local.toml:2",
        "constraint": f"site profile {tmp_path}/clusters/local.toml:5",
        "partition": f"user profile {tmp_path}/config/cordee/defaults.toml:2",
        "qos": f"document {tmp_path}/cordee.toml:4",
        "min_nodes": f"document {tmp_path}/cordee.toml:7",
        "nodes": f"document {tmp_path}/cordee.toml:9",
        "spare_nodes": "environment CORDEE_NEED_SPARE_NODES",
        "time": "flag need.time",
    }


def test_overrides_merge_tables_and_replace_the_rest(load: Load) -> None:
    text = HEAD + "[need]\nnodes = 4\nmemory = '1GB'\n[vet]\ncommands = ['a', 'b']\n"
    job = load(text + "[on.local]\nneed = { nodes = 1 }\nvet.commands = ['c']\nrun = 'true'\n").job
    assert (job.need.nodes, job.need.memory, job.vet.commands, job.run) == (1, 10**9, ("c",), ("true",))


def test_overrides_for_another_cluster_do_not_apply(load: Load) -> None:
    assert load(HEAD + "[on.alps.need]\nnodes = 99\n").job.need.nodes == 1


def test_flags_that_are_none_are_not_given(load: Load) -> None:
    assert load(HEAD + "[need]\nnodes = 2\n", flags={"need.nodes": None}).job.need.nodes == 2


@pytest.mark.parametrize(
    ("variable", "value", "key", "expected"),
    [
        ("CORDEE_NAME", "123", "name", "123"),
        ("CORDEE_NEED_ACCOUNT", "007", "need.account", "007"),
        ("CORDEE_CODE", "snapshot", "code", "snapshot"),
        ("CORDEE_NEED_RANKS_PER_NODE", "2", "need.ranks_per_node", 2),
        ("CORDEE_NEED_RANKS_PER_NODE", "gpu", "need.ranks_per_node", "gpu"),
        ("CORDEE_NEED_MEMORY", "2GiB", "need.memory", 2 << 30),
        ("CORDEE_VET_MAX_LOAD", "1.5", "vet.max_load", 1.5),
        ("CORDEE_VET_MODULES", "['torch']", "vet.modules", ("torch",)),
        ("CORDEE_RESTART_RETRIES", "0", "restart.retries", 0),
        ("CORDEE_SETUP", "module load x", "setup", ("module load x",)),
    ],
)
def test_a_variable_is_read_as_its_key_wants_it(
    load: Load, variable: str, value: str, key: str, expected: object
) -> None:
    found: object = load(HEAD, {variable: value}).job
    for part in key.split("."):
        found = getattr(found, part)
    assert found == expected
    found = load(HEAD, flags={key: value}).job
    for part in key.split("."):
        found = getattr(found, part)
    assert found == expected


def test_a_wrong_variable_or_flag_is_named(faults: Faults) -> None:
    (found,) = faults(HEAD, environ={"CORDEE_NEED_NODES": "many"})
    assert found.text == "need.nodes is not a whole number (from CORDEE_NEED_NODES)"
    assert (found.file, found.given, found.next) == (None, "many", "change CORDEE_NEED_NODES")
    (found,) = faults(HEAD, flags={"need.nods": "2"})
    assert found.text == "[need] has no key nods (from need.nods)"
    assert found.next == "did you mean nodes?"


def test_a_misspelt_variable_is_told(load: Load) -> None:
    (found,) = load(HEAD, {"CORDEE_NEED_NODE": "2"}).findings
    assert (found.rule, found.severity, found.given) == ("unknown-variable", "warn", "CORDEE_NEED_NODE")
    assert found.next == "did you mean CORDEE_NEED_NODES?"
    assert "CORDEE_NEED_NODES" in found.allowed


def test_a_misspelt_cluster_is_told_and_one_that_is_elsewhere_is_not(load: Load) -> None:
    (found,) = load(HEAD + "[on.locl.need]\nnodes = 2\n[on.titan.need]\nnodes = 3\n", {}).findings
    assert (found.rule, found.severity, found.given, found.next) == (
        "unknown-cluster", "warn", "locl", "did you mean [on.local]?",
    )  # fmt: skip


def test_what_a_rank_has_in_its_environment_is_no_setting(load: Load) -> None:
    inside = {"CORDEE_RUN_ID": "x", "CORDEE_CHECKPOINT_EVERY": "5.0", "CORDEE_RUN_DIR": "/x", "CORDEE_RUN": "y"}
    loaded = load(HEAD, inside)
    assert loaded.job.checkpoint is None
    assert loaded.job.run == ("python", "train.py")


def test_a_fault_in_the_persons_defaults_names_that_file(faults: Faults, tmp_path: Path) -> None:
    (tmp_path / "config/cordee").mkdir(parents=True)
    own = tmp_path / "config/cordee/defaults.toml"
    own.write_text("[need]\n\nqos = 3\n")
    (found,) = faults(HEAD)
    assert (found.file, found.line, found.text) == (str(own), 3, "need.qos is not a text in quotes")


def test_a_fault_in_a_profiles_defaults_names_the_profile(faults: Faults, tmp_path: Path) -> None:
    _profile(tmp_path, "[defaults.need]\nqoss = 'x'\n")
    (found,) = faults(HEAD)
    assert (found.file, found.line) == (str(tmp_path / "clusters/local.toml"), 2)
    assert found.text == "[defaults.need] has no key qoss"


def test_a_file_or_its_folder_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text(HEAD)
    (tmp_path / "cordee.toml").write_text(HEAD.replace('"a"', '"b"'))
    assert load_job(tmp_path / "other.toml").job.name == "a"
    loaded = load_job(tmp_path)
    assert (loaded.job.name, loaded.folder, loaded.path.name) == ("b", tmp_path, "cordee.toml")


def test_the_cluster_is_the_argument_else_cordee_on_else_local(load: Load, tmp_path: Path) -> None:
    _profile(tmp_path, "scheduler = 'slurm'\n", name="alps")
    assert load(HEAD).cluster.name == "local"
    assert load(HEAD, {"CORDEE_ON": "alps"}).cluster.scheduler == "slurm"
    assert load(HEAD, {"CORDEE_ON": "alps"}, cluster="local").cluster.name == "local"


def test_an_unknown_cluster_is_told_with_the_known_ones(load: Load, tmp_path: Path) -> None:
    _profile(tmp_path, "scheduler = 'slurm'\n", name="alps")
    with pytest.raises(UsageError) as caught:
        load(HEAD, cluster="alp")
    error = caught.value
    assert (error.text, error.given) == ("there is no cluster alp", "alp")
    assert error.allowed == ["local", "alps"]
    assert error.next == "did you mean alps?"


def _error(path: Path) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        load_job(path)
    (finding,) = caught.value.findings
    assert (finding.file, finding.line, finding.given) == (caught.value.file, caught.value.line, caught.value.given)
    assert finding.next
    assert finding.allowed
    return caught.value


def test_a_folder_without_a_document_points_to_init(tmp_path: Path) -> None:
    error = _error(tmp_path)
    assert error.text == f"there is no cordee.toml in {tmp_path}"
    assert error.given == str(tmp_path)
    assert error.next == f"`cordee init {tmp_path}` writes one"


def test_a_misspelt_document_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "cordee.toml").write_text(HEAD)
    assert _error(tmp_path / "cordee.tml").next == f"did you mean {tmp_path}/cordee.toml?"


def test_a_misspelt_folder_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    error = _error(tmp_path / "trainng" / "cordee.toml")
    assert error.text == f"there is no folder {tmp_path}/trainng"
    assert error.next == f"did you mean {tmp_path}/training?"


def test_bytes_that_are_not_utf8_have_a_line(tmp_path: Path) -> None:
    (tmp_path / "cordee.toml").write_bytes(b'name = "a"\nrun = "\xff"\n')
    error = _error(tmp_path)
    assert (error.text, error.line, error.given) == ("is not UTF-8", 2, "\\xff")


def test_a_document_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "cordee.toml").write_bytes(b"#" * (2 << 20))
    assert _error(tmp_path).text == "is too large for a document"


def test_a_syntax_error_has_a_line_and_what_stands_there(tmp_path: Path) -> None:
    (tmp_path / "cordee.toml").write_text('name = "a"\nrun = python train.py\n')
    error = _error(tmp_path)
    assert (error.line, error.given) == (2, "run = python train.py")
    assert error.text.startswith("is not valid TOML: invalid value")


def test_a_document_nested_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cordee.toml").write_text("a = " + "[" * 100_000)
    assert _error(tmp_path).file == str(tmp_path / "cordee.toml")


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "cordee.toml").write_bytes(b'\xef\xbb\xbfname = "a"\r\nrun = "x"\r\n')
    assert load_job(tmp_path).job.run == ("x",)


def test_a_document_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "cordee.toml").mkdir()
    assert _error(tmp_path).text == f"cannot read it: {os.strerror(21)}"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cordee.toml")
    assert _error(tmp_path).text == "is not a file"


def test_a_flag_for_a_table_that_does_not_exist_is_named(faults: Faults) -> None:
    (found,) = faults(HEAD, flags={"needs.nodes": "2"})
    assert (found.text, found.file) == ("the document has no key needs (from needs.nodes)", None)
    (found,) = faults(HEAD, flags={"name.x": "2"})
    assert found.text == "name is not a text in quotes (from name.x)"


def test_an_empty_variable_is_not_given(load: Load) -> None:
    assert load(HEAD, {"CORDEE_NEED_NODES": ""}).job.need.nodes == 1


def test_the_persons_defaults_may_differ_by_cluster(load: Load, tmp_path: Path) -> None:
    (tmp_path / "config/cordee").mkdir(parents=True)
    own = tmp_path / "config/cordee/defaults.toml"
    own.write_text("[need]\nnodes = 2\n[on.local.need]\nnodes = 3\n[on.alps.need]\nnodes = 4\n")
    loaded = load(HEAD)
    assert loaded.job.need.nodes == 3
    assert str(loaded.provenance["need.nodes"]) == f"user profile {own}:4"
