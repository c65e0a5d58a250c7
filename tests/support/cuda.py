"""A CUDA driver library without a GPU, for checks that compute with nothing but the driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cordee.core.errors import CordeeError

SOURCE = Path(__file__).with_name("fake_cuda") / "cuda.c"
LIBRARY = "libcuda.so.1"
COMPILER_SOURCE = Path(__file__).with_name("fake_cuda") / "nvrtc.c"
COMPILER = "libnvrtc.so"


def build_compiler(folder: Path) -> Path:
    """Compile the NVRTC that compiles nothing into `folder`, to be named by LD_LIBRARY_PATH, and return the folder.

    Raises:
        CordeeError: there is no C compiler, or it failed.
    """
    return _build(folder, COMPILER, COMPILER_SOURCE)


def build(folder: Path) -> Path:
    """Compile the library into `folder`, to be named by LD_LIBRARY_PATH, and return the folder.

    FAKE_CUDA in the environment says what it is like: `count=2 wrong=1`, `error=100`, `launch_error=214`.

    Raises:
        CordeeError: there is no C compiler, or it failed.
    """
    return _build(folder, LIBRARY, SOURCE)


def _build(folder: Path, library: str, source: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-O1", "-std=gnu11", "-Wall", "-Werror", "-fPIC", "-shared", f"-Wl,-soname,{library}"]
    try:
        done = subprocess.run(
            ["cc", *options, "-o", str(folder / library), str(source)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CordeeError(f"no C compiler: {error}", given="cc", next="install gcc") from None
    if done.returncode:
        raise CordeeError(f"the fake {library} cannot be compiled: {done.stderr.strip()[-2000:]}")
    return folder
