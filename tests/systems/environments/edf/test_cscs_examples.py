"""The EDF examples of the public CSCS documentation (August 2026) resolve, with the values that its pages say they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.core.errors import DocumentError
from cordee.systems.environments.edf import resolve
from cordee.systems.environments.node.document import ContainerMount

EXAMPLES = Path(__file__).parent / "cscs"
HOST = {
    "HOME": "/users/me",
    "USER": "me",
    "SCRATCH": "/capstor/scratch/cscs/me",
    "PWD": "/users/me",
    "PATH": "/usr/bin:/bin",
    "VAR_FROM_HOST": "nid001",
}
WHOLE = sorted(path.stem for path in EXAMPLES.glob("*.toml") if path.stem != "vscode")
EDF, HOOKS, RUN = (f"docs/software/container-engine/{page}.md" for page in ("edf", "resource-hook", "run"))
SCRATCH = "/capstor/scratch/cscs/me"
KEY = {"com.hooks.ssh.authorize_ssh_key": f"{SCRATCH}/tests/edf/authorized_keys", "com.hooks.ssh.enabled": "true"}
# Page, text, attribute of the environment, what it is.
FIELDS = [
    *(
        (EDF, f'image = "{image}"', "image", image)
        for image in (
            "library/ubuntu:24.04",
            "docker.io#library/ubuntu:24.04",
            "nvcr.io#nvidia/pytorch:22.12-py3",
            "quay.io#madeeks/osu-mb:6.2-mpich4.1-ubuntu22.04-arm64",
            "/path/to/image.squashfs",
        )
    ),
    (EDF, 'workdir = "/home/user/projects"', "workdir", "/home/user/projects"),
    (EDF, 'workdir = "/tmp"', "workdir", "/tmp"),
    (EDF, "entrypoint = true", "entrypoint", True),
    (EDF, "writable = true", "writable", True),
    (
        EDF,
        'mounts = ["/capstor/scratch/cscs/amadonna:/capstor/scratch/cscs/amadonna"]',
        "mounts",
        (ContainerMount("/capstor/scratch/cscs/amadonna", "/capstor/scratch/cscs/amadonna"),),
    ),
    (
        EDF,
        'mounts = ["/capstor/scratch/cscs/${USER}:/capstor/scratch/cscs/${USER}"]',
        "mounts",
        (ContainerMount(SCRATCH, SCRATCH),),
    ),
    (EDF, 'mounts = ["${SCRATCH}:${SCRATCH}"]', "mounts", (ContainerMount(SCRATCH, SCRATCH),)),
    (
        EDF,
        'mounts = ["${SCRATCH}/data.sqsh:/data:sqsh"]',
        "mounts",
        (ContainerMount(f"{SCRATCH}/data.sqsh", "/data", ("sqsh",)),),
    ),
    (
        EDF,
        'mounts = ["${SCRATCH}:${SCRATCH}", "${SCRATCH}/data.sqsh:/data:sqsh"]',
        "mounts",
        (ContainerMount(SCRATCH, SCRATCH), ContainerMount(f"{SCRATCH}/data.sqsh", "/data", ("sqsh",))),
    ),
    (EDF, '[env]\nMY_RUN = "production"\nDEBUG = "false"', "env", {"MY_RUN": "production", "DEBUG": "false"}),
    (
        EDF,
        '[env]\nMY_NODE = "${VAR_FROM_HOST}"\nPATH = "${PATH}:/custom/bin"\nDEBUG = "true"',
        "env",
        {"MY_NODE": "nid001", "PATH": "/usr/bin:/bin:/custom/bin", "DEBUG": "true"},
    ),
    (EDF, '[annotations]\ncom.hooks.cxi.enabled = "false"', "annotations", {"com.hooks.cxi.enabled": "false"}),
    (
        EDF,
        '[annotations.com.hooks.ssh]\nauthorize_ssh_key = "${SCRATCH}/tests/edf/authorized_keys"\nenabled = "true"',
        "annotations",
        KEY,
    ),
    (
        EDF,
        '[annotations]\ncom.hooks.ssh.authorize_ssh_key = "${SCRATCH}/tests/edf/authorized_keys"\n'
        'com.hooks.ssh.enabled = "true"',
        "annotations",
        KEY,
    ),
    (HOOKS, '[annotations.com.hooks.ssh]\nenabled = "true"', "annotations", {"com.hooks.ssh.enabled": "true"}),
    (
        HOOKS,
        '[annotations]\ncom.hooks.netstack.version = "latest"\ncom.hooks.netstack.name = "default"',
        "annotations",
        {"com.hooks.netstack.version": "latest", "com.hooks.netstack.name": "default"},
    ),
    (
        "docs/software/communication/nccl.md",
        '[env]\nPMIX_MCA_psec="^munge"\n\n[annotations]\ncom.hooks.aws_ofi_nccl.enabled = "true"\n'
        'com.hooks.aws_ofi_nccl.variant = "cuda-dl"',
        "env",
        {"PMIX_MCA_psec": "^munge"},
    ),
    (
        "docs/software/communication/openmpi.md",
        '[env]\nPMIX_MCA_psec="native"\nFI_PROVIDER="cxi"\nOMPI_MCA_pml="cm"\nOMPI_MCA_mtl="ofi"',
        "env",
        {"PMIX_MCA_psec": "native", "FI_PROVIDER": "cxi", "OMPI_MCA_pml": "cm", "OMPI_MCA_mtl": "ofi"},
    ),
    (
        "docs/running/jobreport.md",
        '[annotations]\ncom.hooks.dcgm.enabled = "true"',
        "annotations",
        {"com.hooks.dcgm.enabled": "true"},
    ),
    (
        RUN,
        'image = "${SCRATCH}/nvidia+cuda+11.8.0-cudnn8-devel-ubuntu22.04.sqsh"',
        "image",
        f"{SCRATCH}/nvidia+cuda+11.8.0-cudnn8-devel-ubuntu22.04.sqsh",
    ),
    (
        RUN,
        'image = "nvcr.io#nvidia/nvhpc:23.7-runtime-cuda11.8-ubuntu22.04"',
        "image",
        "nvcr.io#nvidia/nvhpc:23.7-runtime-cuda11.8-ubuntu22.04",
    ),
    (RUN, 'mounts = ["${SCRATCH}:/scratch"]', "mounts", (ContainerMount(SCRATCH, "/scratch"),)),
    (
        RUN,
        'mounts = ["${SCRATCH}:${SCRATCH}", "${HOME}/data:${HOME}/data"]',
        "mounts",
        (ContainerMount(SCRATCH, SCRATCH), ContainerMount("/users/me/data", "/users/me/data")),
    ),
    (
        "docs/software/container-engine/sarus-suite/user-guide.md",
        'devices = ["nvidia.com/gpu=all", "/dev/gdrdrv"]',
        "devices",
        ("nvidia.com/gpu=all", "/dev/gdrdrv"),
    ),
    (
        "docs/software/container-engine/sarus-suite/user-guide.md",
        'devices = ["hpe.com/cxi=all"]',
        "devices",
        ("hpe.com/cxi=all",),
    ),
]


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_example_resolves_by_path_and_by_name(name, tmp_path):
    by_path = resolve(str(EXAMPLES / f"{name}.toml"), cwd=tmp_path, variables=HOST)
    by_name = resolve(name, cwd=tmp_path, variables={**HOST, "EDF_PATH": str(EXAMPLES)})
    assert by_path.environment == by_name.environment
    assert by_path.environment.image
    assert by_path.findings == ()
    assert "${" not in repr(by_path.environment)


@pytest.mark.parametrize(("page", "text", "attribute", "value"), FIELDS)
def test_an_example_of_a_field_has_the_value_that_the_page_says(page, text, attribute, value, resolved):
    assert getattr(resolved(text, HOST).environment, attribute) == value


def test_the_example_of_the_jupyter_page_has_all_its_values(tmp_path):
    environment = resolve("jupyter", cwd=tmp_path, variables={**HOST, "EDF_PATH": str(EXAMPLES)}).environment
    assert environment.image == "/capstor/scratch/cscs/me/ce-images/ngc-pytorch+25.05.sqsh"
    assert [mount.source for mount in environment.mounts][:3] == [
        "/capstor",
        "/iopsstor",
        "/users/me/.local/share/jupyter",
    ]
    assert all(mount.source == mount.target and not mount.flags for mount in environment.mounts)
    assert environment.workdir == "/capstor/scratch/cscs/me"
    assert environment.writable
    assert not environment.entrypoint
    assert environment.env["MPICH_GPU_SUPPORT_ENABLED"] == "0"
    assert environment.annotations == {
        "com.hooks.aws_ofi_nccl.enabled": "true",
        "com.hooks.aws_ofi_nccl.variant": "cuda12",
    }


@pytest.mark.parametrize("bases", ['"common_env"', '["common_env", "ml_pytorch_env1"]'])
def test_the_examples_of_inheritance_resolve(bases, resolved, write, tmp_path):
    write("edf/common_env.toml", 'image = "library/ubuntu:24.04"\nmounts = ["${SCRATCH}:${SCRATCH}"]')
    write("edf/ml_pytorch_env1.toml", '[env]\nNCCL_DEBUG = "INFO"')
    environment = resolved(f"base_environment = {bases}", {**HOST, "EDF_PATH": f"{tmp_path}/edf"}).environment
    assert environment.image == "library/ubuntu:24.04"
    assert environment.mounts == (ContainerMount(SCRATCH, SCRATCH),)
    assert environment.env == ({"NCCL_DEBUG": "INFO"} if "ml_pytorch" in bases else {})


def test_the_example_that_the_documentation_calls_invalid_is_refused_with_its_line(resolved):
    text = (
        '[annotations]\ncom.hooks.ssh.authorize_ssh_key = "${SCRATCH}/tests/edf/authorized_keys"\n\n'
        '[annotations.com.hooks.ssh]\nenabled = "true"\n'
    )
    with pytest.raises(DocumentError) as caught:
        resolved(text, HOST)
    assert caught.value.line == 4


def test_the_example_that_is_no_toml_as_it_is_published_is_refused_with_its_line(tmp_path):
    with pytest.raises(DocumentError) as caught:
        resolve(str(EXAMPLES / "vscode.toml"), cwd=tmp_path, variables=HOST)
    assert caught.value.line == 6
    assert "not valid TOML" in caught.value.text


def test_an_annotation_outside_its_table_is_told_where_it_belongs(resolved):
    with pytest.raises(DocumentError) as caught:
        resolved('com.hooks.cxi.enabled = "true"', HOST)
    assert "[annotations]" in caught.value.next
