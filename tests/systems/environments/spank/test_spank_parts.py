"""What the SPANK plugin runs where a job is submitted, what it carries, and its installation."""

from __future__ import annotations

import json
import os
import random
import string
import subprocess
import zipfile
from pathlib import Path

import pytest

from cordee.core.errors import UsageError
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments import spank_install, spank_render
from cordee.systems.environments.node.document import ContainerMount, ContainerRoot, Environment
from cordee.systems.environments.node.spank.carried import LONGEST, carried, carry
from cordee.systems.environments.node.spank.hold import asked_for


def made(**changes) -> Environment:
    mounts = (ContainerMount("/a b", "/c:d", ("ro",)),)
    env = {"QUOTES": "a \"b\" 'c'\nd=e", "BYTES": "\udcff", "EMPTY": ""}
    return Environment("name", image="/i", mounts=mounts, env=env, root=ContainerRoot("folder", "/i"), **changes)


def random_mounts(count: int, letters: int) -> tuple[ContainerMount, ...]:
    dice = random.Random(1)
    names = ["".join(dice.choices(string.ascii_letters, k=letters)) for _ in range(count)]
    return tuple(ContainerMount(f"/store/{name}", f"/data/{name}") for name in names)


def test_an_environment_is_the_same_after_its_journey():
    word = carry(made())
    assert carried(word) == made()
    assert word.isascii()
    assert not set(word) & set(" \t\n'\"\\$")


def test_a_thousand_mounts_that_do_not_compress_can_be_carried():
    environment = Environment("m", root=ContainerRoot("host"), mounts=random_mounts(1000, 200))
    assert carried(carry(environment)) == environment


def test_what_is_too_large_to_be_carried_is_refused_with_its_size(tmp_path):
    mounts = random_mounts(1000, 2000)
    with pytest.raises(ValueError, match=f"more than {LONGEST}"):
        carry(Environment("m", root=ContainerRoot("host"), mounts=mounts))
    names = ["one", "two", "all"]
    for part, name in enumerate(names[:2]):
        listed = [f"{each.source}:/data" for each in mounts[part * 500 : part * 500 + 500]]
        (tmp_path / f"{name}.toml").write_text(f"mounts = {json.dumps(listed)}\n")
    (tmp_path / "all.toml").write_text('base_environment = ["./one.toml", "./two.toml"]\n')
    with pytest.raises(UsageError, match="too large to travel") as caught:
        spank_render.render("./all.toml", cwd=tmp_path, variables={"HOME": str(tmp_path)})
    assert "all.toml" in str(caught.value)


@pytest.mark.parametrize("word", ["", "no word", "AAAA", carry(made())[:-8]])
def test_what_another_version_or_an_accident_made_is_refused_in_words(word):
    with pytest.raises(Exception, match="cannot be read here"):
        asked_for({"document": word})


def test_an_image_says_nothing_of_where_a_task_stands_in_its_job():
    config = ImageConfig(env={"SLURM_PROCID": "7", "PMI_RANK": "7", "PATH": "/opt/bin"})
    assert asked_for({"document": carry(made(config=config))}).config.env == {"PATH": "/opt/bin"}


def test_a_batch_scripts_folder_is_seen_inside_a_container_and_the_host_has_it_anyway():
    request = {"document": carry(made()), "script": "/spool/job1/slurm_script"}
    assert asked_for(request).mounts[-1] == ContainerMount("/spool/job1", "/spool/job1", ("ro",))
    host = Environment("h", root=ContainerRoot("host"))
    assert asked_for({**request, "document": carry(host)}) == host


def test_what_a_site_shows_is_seen_inside_where_a_node_has_it_and_the_edf_does_not_cover_it(tmp_path):
    request = {"document": carry(made()), "bind": f"{tmp_path}:/no/such/path:/c:/c:d"}
    assert asked_for(request).mounts == (ContainerMount(str(tmp_path), str(tmp_path)), *made().mounts)


def test_rendering_says_every_fault_with_its_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "env.toml").write_text("imag = 1\nworkdir = 3\n")
    monkeypatch.chdir(tmp_path)
    assert spank_render.main(["./env.toml"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "env.toml:1: error: an EDF has no key imag" in said.err
    assert "env.toml:2" in said.err


def test_a_variable_stands_for_the_lenient_mode(tmp_path, monkeypatch, capsys):
    (tmp_path / "env.toml").write_text("of_the_site = 1\n")
    monkeypatch.chdir(tmp_path)
    assert spank_render.main(["./env.toml"]) == 2
    assert "--lenient is CORDEE_EDF_LENIENT=1" in capsys.readouterr().err
    variables = {"HOME": str(tmp_path), "CORDEE_EDF_LENIENT": "1"}
    assert carried(spank_render.render("./env.toml", cwd=tmp_path, variables=variables)).root == ContainerRoot("host")
    assert "of_the_site" in capsys.readouterr().err


def test_the_plugin_compiles_without_a_warning_and_is_installed_below_a_package_folder(call, tmp_path, monkeypatch):
    where = ["--plugin-dir", "/usr/lib64/slurm", "--plugstack", "/etc/slurm/plugstack.conf", "--destdir", str(tmp_path)]
    conf = tmp_path / "etc/slurm/plugstack.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(
        "# the site's\noptional other.so\nrequired /old/spank_cordee.so python=/old\ninclude plugstack.conf.d/*"
    )
    monkeypatch.setenv("CC", "cc -Werror")
    shown = json.loads(
        call(
            "install-spank",
            *where,
            "--python",
            "/opt/python",
            "--node-python",
            "/usr/bin/python3",
            "--bind",
            "/etc/slurm",
            "--bind",
            "/opt/prolog",
            "--json",
        )
    )
    library = tmp_path / "usr/lib64/slurm/spank_cordee.so"
    zipped = library.with_name("cordee-node.zip")
    assert shown["written"] == [str(library), str(zipped), str(conf)]
    assert conf.read_text().splitlines() == [
        "# the site's",
        "optional other.so",
        "include plugstack.conf.d/*",
        "required /usr/lib64/slurm/spank_cordee.so python=/opt/python node_python=/usr/bin/python3 "
        "node_cordee=/usr/lib64/slurm/cordee-node.zip bind=/etc/slurm:/opt/prolog",
    ]
    assert "cordee/systems/environments/node/spank/hold.py" in zipfile.ZipFile(zipped).namelist()
    symbols = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    assert "slurm_spank_task_init" in symbols


def test_without_headers_or_a_compiler_nothing_is_written_and_the_reason_is_named(tmp_path):
    target = tmp_path / "out" / "p.so"
    target.parent.mkdir()
    with pytest.raises(UsageError, match="no C compiler"):
        spank_install.build(target, compiler="no-such-compiler")
    with pytest.raises(UsageError, match=r"no slurm/spank\.h") as caught:
        spank_install.build(target, compiler="cc -nostdinc")
    assert "libslurm-dev" in str(caught.value)
    assert os.listdir(target.parent) == []


def test_a_site_that_has_the_option_keeps_it_and_nothing_is_written(tmp_path, monkeypatch):
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text("#!/bin/sh\necho '      --environment=EDF   Path or name of an EDF'\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{srun.parent}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match="another plugin") as caught:
        spank_install.install(tmp_path / "lib" / "p.so", tmp_path / "plugstack.conf", ["python=/p"])
    assert "Path or name" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_a_path_with_a_blank_is_refused():
    with pytest.raises(UsageError, match="cannot hold blanks"):
        spank_install.plugstack_line(Path("/a b/p.so"), [])


@pytest.fixture
def call(capsys):
    """Run `cordee env ...` in this process and return what it prints."""
    from cordee.systems.environments.cli import command

    def run(*argv: str) -> str:
        command.main(list(argv), standalone_mode=False)
        return capsys.readouterr().out

    return run


def test_a_job_carries_what_an_image_of_enroot_says(tmp_path):
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/rc").write_text('cd "/work" && unset OLDPWD || exit 1\n')
    (tmp_path / "root/etc/environment").write_text("PATH=/opt/bin\n")
    (tmp_path / "env.toml").write_text('image = "./root"\n[env]\nPATH = "/mine:${PATH}"\n')
    sent = carried(spank_render.render("./env.toml", cwd=tmp_path, variables={"HOME": str(tmp_path), "PATH": "/bin"}))
    assert (sent.begins_in(), sent.env) == ("/work", {"PATH": "/mine:/opt/bin"})
