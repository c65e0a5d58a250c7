"""A CUDA driver library without a GPU, for checks that compute with nothing but the driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cordee.errors import CordeeError

SOURCE = Path(__file__).with_name("fake_cuda") / "cuda.c"
LIBRARY = "libcuda.so.1"


def build(folder: Path) -> Path:
    """Compile the library into `folder`, to be named by LD_LIBRARY_PATH, and return the folder.

    FAKE_CUDA in the environment says what it is like: `count=2 wrong=1`, `error=100`, `launch_error=214`.

    Raises:
        CordeeError: there is no C compiler, or it failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-O1", "-std=gnu11", "-Wall", "-Werror", "-fPIC", "-shared", f"-Wl,-soname,{LIBRARY}"]
    try:
        done = subprocess.run(
            ["cc", *options, "-o", str(folder / LIBRARY), str(SOURCE)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CordeeError(f"no C compiler: {error}", given="cc", next="install gcc") from None
    if done.returncode:
        raise CordeeError(f"the fake CUDA driver cannot be compiled: {done.stderr.strip()[-2000:]}")
    return folder
