"""Blueprints: what is right is read, what is wrong is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.systems.services.conftest import BLUEPRINT

from cordee.core.errors import DocumentError, UsageError
from cordee.systems.services.blueprint import TARGETS, LoadedBlueprint, load_blueprint, parameter_values, read_blueprint
from cordee.systems.services.catalogue import blueprint_again, catalogue, find_blueprint
from cordee.systems.services.cli.catalogue import check, new
from cordee.systems.services.instance import ServiceFolder
from cordee.systems.services.start import refusals

FILE = Path("echo.toml")


def faults(text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(DocumentError) as caught:
        read_blueprint(text, FILE)
    return [(one.line, one.text) for one in caught.value.findings]


def test_every_entry_of_the_catalogue_is_right_and_says_what_it_is_for_costs_and_how_it_is_backed_up(monkeypatch):
    monkeypatch.setenv("CORDEE_CATALOGUES", "/nowhere")
    found, wrong = catalogue()
    assert wrong == []
    assert {"mlflow", "tensorboard", "jupyterlab", "postgresql", "redis", "endpoint", "open-webui", "ollama"} <= set(
        found
    )
    for name, one in found.items():
        assert one.blueprint.purpose.endswith("."), name
        assert one.blueprint.cost, name
        assert one.blueprint.backup.text, name
        assert any(not refusals(one, target) for target in TARGETS), name
        assert one.blueprint.closed or one.blueprint.guard == "none", f"{name}: nothing checks that it is closed"


@pytest.mark.parametrize(
    ("name", "switches"),
    [
        ("prefect", {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}),
        ("mlflow", {"MLFLOW_DISABLE_TELEMETRY": "true"}),
        ("ray", {"RAY_USAGE_STATS_REPORT_URL": "none:"}),
        ("vllm", {"VLLM_NO_USAGE_STATS": "1"}),
        ("open-webui", {"ANONYMIZED_TELEMETRY": "false", "ENABLE_VERSION_UPDATE_CHECK": "false"}),
    ],
)
def test_an_entry_whose_program_has_a_switch_for_telemetry_turns_it_off(name, switches):
    assert switches.items() <= find_blueprint(name).blueprint.env.items()


@pytest.mark.parametrize("words", ["argv", "image_argv"])
def test_jupyterlab_asks_for_no_news_and_ray_for_no_statistics(words):
    lab, ray = (getattr(find_blueprint(name).blueprint, words) for name in ("jupyterlab", "ray"))
    assert {"--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"} <= set(lab)
    assert "--disable-usage-stats" in ray


def test_ray_and_its_clients_stay_on_loopback_and_readiness_asks_a_path_that_needs_no_token():
    ray = find_blueprint("ray").blueprint
    assert ray.env["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == ray.client["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert ray.ready.path == "/api/gcs_healthz"
    assert ray.argv is not None
    assert "{temp}/ray" in ray.argv


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ("{volume.data}", "{temp.data}", 5, "which is not there"),
        ('GREETING = "', 'GREETING = "{temp}', 28, "which is not there"),
        ("port = 8080", "port = 99999", 12, "too large"),
        ("port = 8080", 'port = "8080"', 12, "not a whole number"),
        ("{port.http}", "{port.htpt}", 5, "which is not there"),
        ("{secret.token}", "{value.token}", 5, "would show the secret token to everybody"),
        ("{volume.data}", "{volume.data", 5, "braces that do not match"),
        ('name = "echo"', 'name = "../echo"', 3, "is no name of a service"),
        ("[closed]", "[closde]", 19, "has no key closde"),
        ("[secrets.token]", '[secrets.token]\nfrom = "env:X"', 26, "is no source of a secret"),
        ("[env]\nGREETING", '[env]\n"A B"', 28, "cannot be a name here"),
        ("schema = 1", "schema = 7", 2, "newer version"),
        ('default = "hello"', 'default = "a\\nb"', 9, "not of its type"),
    ],
)
def test_a_fault_is_told_with_its_line(before, after, line, said):
    assert before in BLUEPRINT
    found = faults(BLUEPRINT.replace(before, after))
    assert any(at == line and said in text for at, text in found), found


def test_two_endpoints_of_one_port_and_a_probe_of_none_are_faults():
    two = BLUEPRINT.replace("[ready]", '[ports.other]\nport = 8080\n\n[ready]\nport = "htp"', 1)
    assert {text for _, text in faults(two)} == {
        "ports.other and ports.http are the same port",
        "[ready] asks the port htp, which is not there",
    }


@pytest.mark.parametrize(
    ("kind", "value", "right"),
    [
        ("name", "a.b-c", True),
        ("name", "../a", False),
        ("path", "/a/b", True),
        ("path", "/a/../../etc/passwd", False),
        ("path", "a", False),
        ("integer", "12", True),
        ("integer", "1; rm", False),
        ("boolean", "true", True),
        ("boolean", "1", False),
        ("text", "a: b # {x}", True),
        ("text", "a\nb: c", False),
    ],
)
def test_a_parameter_is_what_its_type_allows(kind, value, right):
    text = BLUEPRINT.replace('type = "text"\ndefault = "hello"', f'type = "{kind}"')
    blueprint = read_blueprint(text, FILE).blueprint
    if right:
        assert parameter_values(blueprint, {"greeting": value}) == {"greeting": value}
    else:
        with pytest.raises(UsageError, match="not of its type"):
            parameter_values(blueprint, {"greeting": value})


def test_what_a_target_cannot_honour_is_refused_by_name():
    loaded = read_blueprint(
        BLUEPRINT.replace("[volumes.data]", '[volumes.data]\nclass = "longhorn"') + "[need]\n", FILE
    )
    assert [one.text for one in refusals(loaded, "process")] == [
        "process cannot honour it: the volume data asks for a StorageClass"
    ]
    assert any("has no image" in one.text for one in refusals(loaded, "kubernetes"))
    several = read_blueprint(BLUEPRINT.replace("schema = 1", "schema = 1\nreplicas = 3"), FILE)
    assert any("replicas = 3" in one.text and one.line == 3 for one in refusals(several, "slurm"))


def test_what_the_guard_cannot_hold_is_told_before_it_starts(tmp_path):
    file = tmp_path / "echo.toml"
    file.write_text(
        BLUEPRINT.replace('["python", "PROGRAM"', '["ls"').replace("schema = 1", 'schema = 1\nguard = "token"')
    )
    said = CliRunner().invoke(check, [str(file)])
    assert said.exit_code == 2
    assert f"{file}:3: error: process cannot honour it" in said.output
    assert "ls is none" in said.output
    assert refusals(find_blueprint(str(file)), "slurm")
    file.write_text(file.read_text().replace('["ls"', '["python3", "-m", "http.server"'))
    assert CliRunner().invoke(check, [str(file)]).exit_code == 0


def test_programs_and_scripts_lie_beside_the_file_also_once_it_is_a_revision(tmp_path):
    written, kept = tmp_path / "written {here}", ServiceFolder(tmp_path / "services" / "echo")
    written.mkdir()
    (written / "serve.py").touch()
    file = written / "echo.toml"
    file.write_text(BLUEPRINT)
    kept.make()
    kept.keep_revision(load_blueprint(file))
    kept.write({"revision": 1}, "deployed")
    beside = f"{tmp_path}/written {{{{here}}}}"
    for loaded in (load_blueprint(file), kept.blueprint()):
        assert loaded.command(["./serve", "x"]) == [f"{beside}/serve", "x"]
        assert loaded.command(["bin/serve", "a/b"]) == [f"{beside}/bin/serve", "a/b"]
        assert loaded.command(["python", "-u", "serve.py", "{port.http}"]) == [
            "python",
            "-u",
            f"{beside}/serve.py",
            "{port.http}",
        ]
        for words in (
            ["python", "other.py"],
            ["python", str(written / "serve.py")],
            ["/bin/serve", "x"],
            ["serve"],
            ["{parameter.greeting}/x"],
            [],
        ):
            assert loaded.command(words) == words


def test_a_service_from_a_file_is_found_again_by_its_name_and_one_of_the_catalogue_there(tmp_path, monkeypatch):
    monkeypatch.setenv("CORDEE_CATALOGUES", str(tmp_path / "none"))
    kept, file = ServiceFolder(tmp_path / "services" / "echo"), tmp_path / "echo.toml"
    kept.make()

    def deployed(loaded: LoadedBlueprint) -> None:
        kept.write({"revision": kept.keep_revision(loaded), "blueprint": loaded.blueprint.name}, "deployed")

    file.write_text(BLUEPRINT)
    deployed(load_blueprint(file))
    file.write_text(BLUEPRINT.replace("Answers", "Answers today"))
    assert blueprint_again(kept).blueprint.purpose == "Answers today."
    file.unlink()
    assert blueprint_again(kept).blueprint.purpose == "Answers."
    deployed(find_blueprint("redis"))
    assert blueprint_again(kept) == find_blueprint("redis")


def test_a_persons_entry_lies_over_the_sites_and_both_over_ours(tmp_path, monkeypatch):
    for name in ("site", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "redis.toml").write_text(BLUEPRINT.replace('"echo"', '"redis"').replace("Answers", name))
    (tmp_path / "mine" / "wrong.toml").write_text("name = 1\n")
    monkeypatch.setenv("CORDEE_CATALOGUES", f"{tmp_path / 'site'}:{tmp_path / 'mine'}")
    found, wrong = catalogue()
    assert found["redis"].blueprint.purpose == "mine."
    assert find_blueprint("redis").blueprint.purpose == "mine."
    assert {one.file for one in wrong} == {str(tmp_path / "mine" / "wrong.toml")}
    with pytest.raises(UsageError, match="no service mlfow"):
        find_blueprint("mlfow")


@pytest.mark.parametrize("base", [None, "mlflow", "postgresql"])
def test_a_draft_is_right_as_it_is_and_never_overwrites_anything(tmp_path, base):
    options = ["--directory", str(tmp_path), *(["--from", base] if base else [])]
    assert CliRunner().invoke(new, ["ours", *options]).exit_code == 0
    file = tmp_path / "ours.toml"
    drafted = file.read_text()
    assert read_blueprint(drafted, file).blueprint.name == "ours"
    file.write_text("mine")
    again = CliRunner().invoke(new, ["ours", *options])
    assert isinstance(again.exception, DocumentError)
    assert f"`cordee service check {file}`" in str(again.exception.next)
    assert file.read_text() == "mine"
