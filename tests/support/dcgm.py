"""A host engine that is not there: a library with DCGM's interface, built from C, that answers from a text file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cordee.core.errors import CordeeError

SOURCE = Path(__file__).with_name("fake_dcgm") / "dcgm.c"
LIBRARY = "libdcgm.so.4"
# What an idle GPU says, by field of dcgm_fields.h: clocks in MHz, memory in MiB.
IDLE: dict[int, str] = {
    50: "NVIDIA H100 80GB HBM3",
    100: "345",
    112: "1",
    113: "1980",
    150: "35",
    155: "70.0",
    203: "0",
    204: "0",
    250: "81559",
    252: "4",
    **dict.fromkeys((*range(1001, 1009), 1013, 1014, 1015), "0.0"),
    **dict.fromkeys(range(1009, 1013), "0"),
}


def build(folder: Path) -> Path:
    """Compile the library into `folder` and return its path.

    Raises:
        CordeeError: there is no C compiler, or it failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    options = ["-O1", "-std=gnu11", "-Wall", "-Werror", "-Wno-format-truncation", "-fPIC", "-shared"]
    try:
        done = subprocess.run(
            ["cc", *options, "-o", str(folder / LIBRARY), str(SOURCE)], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CordeeError(f"no C compiler: {error}", given="cc", next="install gcc") from None
    if done.returncode:
        raise CordeeError(f"the fake DCGM cannot be compiled: {done.stderr.strip()[-2000:]}")
    return folder / LIBRARY


class FakeHostEngine:
    """What the host engine says, as a file that the library reads; every method writes it and returns the object.

    Args:
        path: the file; FAKE_DCGM in the environment of who asks names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[str, str] = {"count": "0"}

    def gpu(self, index: int, uuid: str, **values: str) -> FakeHostEngine:
        """Add an idle GPU; its values by `field_<number>` replace those of an idle one."""
        self._values["count"] = str(max(int(self._values["count"]), index + 1))
        self._values.update({f"gpu.{index}.{field}": value for field, value in IDLE.items()})
        return self.set(**{f"gpu.{index}.54": uuid}).set(
            **{f"gpu.{index}.{name.removeprefix('field_')}": value for name, value in values.items()}
        )

    def set(self, **values: str | None) -> FakeHostEngine:
        """Set lines of the file, as its library describes them; None removes one."""
        for key, value in values.items():
            self._values.pop(key, None)
            if value is not None:
                self._values[key] = value
        partial = self.path.with_suffix(f".{os.getpid()}")
        partial.write_text("".join(f"{key} = {value}\n" for key, value in self._values.items()))
        partial.replace(self.path)
        return self
