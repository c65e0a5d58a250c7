"""The tables `[startup]` and `[stack]`: what they come to, what is wrong in them, and views."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.machine.image_config import ImageConfig
from cordee.systems.environments.edf.explain import explain_key, explained_text
from cordee.systems.environments.node.document import ContainerMount
from cordee.systems.environments.node.patches import patched, patches_between

META = {
    "mount": "/user-environment",
    "views": {
        "default": {
            "env": {
                "values": {
                    "list": {"PATH": [{"op": "prepend", "value": ["/user-environment/bin", "/user-environment/sbin"]}]},
                    "scalar": {"CUDA_HOME": "/user-environment/cuda", "GONE": None},
                }
            }
        },
        "empty": {},
    },
}


def squashfs(path: Path, **files: str) -> Path:
    tree = path.with_suffix(".tree")
    for name, text in files.items():
        at = tree / name.replace("__", "/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
    subprocess.run(
        ["mksquashfs", str(tree), str(path), "-quiet", "-no-progress"], check=True, stdout=subprocess.DEVNULL
    )
    shutil.rmtree(tree)
    return path


@pytest.fixture
def uenv(tmp_path: Path) -> Path:
    (tmp_path / "u.tree/meta").mkdir(parents=True)
    (tmp_path / "u.tree/meta/env.json").write_text(json.dumps(META))
    return squashfs(tmp_path / "u.squashfs")


def test_lists_of_bases_go_before_and_of_the_rest_the_last_one_holds(resolved, write):
    write("base.toml", '[startup]\ncommands = ["one"]\ntimeout = "1min"\n[stack]\nmodules = ["gcc"]\noverlay = "/a"\n')
    found = resolved(
        'base_environment = "./base.toml"\n[startup]\ncommands = ["two $HOME"]\n[stack]\noverlay = "./b"\nmodules = ["cuda mpi"]\n'
    )
    assert found.environment.startup == ("module load gcc cuda mpi", "one", "two $HOME")
    assert found.environment.startup_s == 60.0
    assert found.environment.overlay.endswith("/b")
    assert found.additions["startup"] == {"commands": ["one", "two $HOME"], "timeout": "1 min"}


def test_what_is_shown_resolves_to_the_same(resolved, write, uenv):
    text = f'image = "/i"\n[startup]\ncommands = ["a \'b\' $C"]\n[stack]\noverlay = "/$${{x}}"\nviews = ["{uenv}:default"]\n'
    first = resolved(text)
    again = resolved(first.text())
    assert again.environment == first.environment


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[startup]\ncomands = ["x"]\n', "did you mean commands"),
        ('[startup]\ncommands = "x"\n', "not a list of texts"),
        ("[startup]\ncommands = [1]\n", "not a list of texts"),
        ('[startup]\ntimeout = "soon"\n', "no duration"),
        ('[stack]\noverlay = "layer"\n', "no path"),
        ("[stack]\noverlay = true\n", "not a text"),
        ('[stack]\nviews = ["/a:/b:c:d"]\n', "too many parts"),
        ('[stack]\noverlay = "${NOWHERE}"\n', "NOWHERE"),
    ],
)
def test_a_fault_has_its_line_and_what_is_allowed(resolved, text, words):
    with pytest.raises(DocumentError) as caught:
        resolved(text)
    (finding,) = caught.value.findings
    assert finding.line == 2
    assert words in f"{finding.text} {finding.next}"


def test_a_view_of_a_uenv_is_mounted_and_sets_its_variables_below_the_edfs(resolved, uenv):
    found = resolved(f'[stack]\nviews = ["{uenv}:default"]\n[env]\nCUDA_HOME = "/mine"\n')
    assert found.environment.mounts == (ContainerMount(str(uenv), "/user-environment", ("sqsh",)),)
    env = found.environment.variables({"PATH": "/bin", "GONE": "x"})
    assert env == {"PATH": "/user-environment/bin:/user-environment/sbin:/bin", "CUDA_HOME": "/mine"}
    said = explained_text(explain_key("env", found, ImageConfig(), {"PATH": "/bin"}))
    assert (
        f"the view {uenv}:default: prepend /user-environment/bin:/user-environment/sbin\n    otherwise the host: /bin"
        in said
    )
    assert f"otherwise the view {uenv}:default: set /user-environment/cuda" in said


def test_prefixes_stand_beside_each_other_and_the_last_one_wins(resolved, tmp_path):
    venv = squashfs(tmp_path / "v.sqsh", **{"pyvenv.cfg": "home = /usr/bin\n"})
    conda = squashfs(tmp_path / "c.sqsh", **{"conda-meta__history": "x"})
    found = resolved(f'[stack]\nviews = ["{venv}:/opt/v", "{conda}:/opt/c"]\n')
    env = found.environment.variables({"PATH": "/bin"})
    assert env == {"PATH": "/opt/c/bin:/opt/v/bin:/bin", "VIRTUAL_ENV": "/opt/v", "CONDA_PREFIX": "/opt/c"}


def test_a_view_that_is_not_there_or_not_clear_is_refused_with_those_there_are(resolved, uenv, tmp_path):
    plain = squashfs(tmp_path / "p.sqsh", file="x")
    for text, words in (
        (f"{uenv}:defualt", "did you mean default"),
        (f"{uenv}:/other:default", "its views are made for /user-environment"),
        (str(plain), "does not say where it belongs"),
        (f"{plain}:view", "has no views"),
    ):
        with pytest.raises(DocumentError) as caught:
            resolved(f'[stack]\nviews = ["{text}"]\n')
        assert words in str(caught.value)


def test_a_view_that_would_hide_another_ones_file_is_refused(resolved, uenv, tmp_path):
    other = shutil.copy(uenv, tmp_path / "other.squashfs")
    with pytest.raises(DocumentError, match=f"mounted at /user-environment, where {uenv} is, and hide it"):
        resolved(f'[stack]\nviews = ["{uenv}:default", "{other}:default"]\n')
    resolved(f'[stack]\nviews = ["{uenv}:default", "{uenv}:empty"]\n')


def test_a_view_of_something_else_than_a_squashfs_is_called_so(resolved, tmp_path):
    (tmp_path / "page").write_text("<html>")
    for name in ("page", ""):
        with pytest.raises(DocumentError, match="is no squashfs file"):
            resolved(f'[stack]\nviews = ["{tmp_path}/{name}:default"]\n')


def test_a_module_is_a_name_and_no_command_of_the_shell(resolved):
    found = resolved('[stack]\nmodules = ["cuda;touch$IFS/x"]\n')
    assert found.environment.startup == ("module load 'cuda;touch$IFS/x'",)


def test_a_file_that_is_not_on_this_machine_is_left_to_the_machine_that_has_it(resolved):
    found = resolved('[stack]\nviews = ["/store/nowhere.squashfs:default"]\n')
    assert found.environment.mounts == (ContainerMount("/store/nowhere.squashfs", "/user-environment", ("sqsh",)),)


def test_changes_of_lists_hold_over_another_environment():
    before = {"PATH": "/bin", "A": "1", "GONE": "x", "PWD": "/"}
    after = {"PATH": "/new:/bin", "A": "2", "B": "/x", "PWD": "/elsewhere"}
    changes = patches_between(before, after)
    assert patched({"PATH": "/job:/bin", "GONE": "y", "B": "/y"}, changes) == {
        "PATH": "/new:/job:/bin",
        "A": "2",
        "B": "/x",
    }
    assert patched(before, changes) == {**after, "PWD": "/"}
