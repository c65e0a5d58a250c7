"""Building a PyTorch environment: cold, warm, and after one changed line, beside buildah and podman with a Containerfile of the same parts.

    .venv/bin/python benchmarks/environment_build.py FOLDER     # as root; FOLDER on a local disk, 10 GB

All begin with the same Debian of mmdebstrap, and are lent the same indexes. `cold` has nothing but that image; it fetches. Ours ends
with a squashfs file and a bill of materials, the others with an image in their own storage.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from cordee.systems.builds.host_settings import pip_variables

TORCH = "torch==2.13.0"
RECIPE = f"""
image = "torch"
[build]
from = "BASE"
apt = ["python3", "python3-pip"]
pip = ["{TORCH}"]
commands = ["echo one > /etc/line"]
"""


def containerfile(line: str) -> str:
    told, _ = pip_variables()
    settings = " ".join(f"{key}='{value}'" for key, value in told.items() if key not in ("PIP_CERT", "PIP_CONSTRAINT"))
    return (
        "FROM localhost/base\n"
        "RUN apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends python3 python3-pip\n"
        f"RUN {settings} python3 -m pip install -q --break-system-packages --no-cache-dir {TORCH}\n"
        f"RUN echo {line} > /etc/line\n"
    )


class Contest:
    """One folder, and what both tools did in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.base = folder / "base.tar"
        if not self.base.exists():
            words = ["mmdebstrap", "--variant=apt", "--include=ca-certificates", "bookworm", str(self.base)]
            subprocess.run(words, check=True, capture_output=True)
        self.env = {
            **os.environ,
            "CORDEE_BUILD_CACHE": str(folder / "cache"),
            "EDF_IMAGESTORE": str(folder / "store"),
        }

    def ours(self) -> None:
        root = self.folder / "base.sqsh"
        if not root.exists():
            with self.base.open("rb") as tar:
                words = ["sqfstar", "-quiet", "-no-progress", "-comp", "zstd", str(root)]
                subprocess.run(words, stdin=tar, check=True)
        edf = self.folder / "env.toml"
        text = RECIPE.replace("BASE", str(root))
        edf.write_text(text)
        self._build("cordee, cold")
        self._build("cordee, warm")
        edf.write_text(text.replace("echo one", "echo two"))
        self._build("cordee, one changed line")

    def _build(self, what: str) -> None:
        began = time.monotonic()
        words = [sys.executable, "-m", "cordee.cli", "env", "build", "env.toml", "--json"]
        done = subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=True)
        made = json.loads(done.stdout)
        steps = ", ".join(f"{each['step'][:24]} {each['seconds']:.1f}" for each in made["layers"] if each["fresh"])
        print(f"{what}: {time.monotonic() - began:.1f} s ({steps or 'no layer made'})", flush=True)

    def peer(self, name: str) -> None:
        """Time `buildah build` or `podman build`, which take the same words."""
        stores = ["--root", str(self.folder / f"storage-{name}"), "--runroot", str(self.folder / f"run-{name}")]
        number = self._buildah(stores, "from", "scratch").strip()
        self._buildah(stores, "add", number, str(self.base), "/")
        self._buildah(stores, "commit", number, "localhost/base")
        _, mounts = pip_variables()
        lent = [word for source, target, _ in mounts for word in ("-v", f"{source}:{target}:ro")]
        file = self.folder / "Containerfile"
        for what, line in (("cold", "one"), ("warm", "one"), ("one changed line", "two")):
            file.write_text(containerfile(line))
            began = time.monotonic()
            build = ["build", "--isolation=chroot", "--network=host", "--layers", *lent, "-t", "torch", "-f", str(file)]
            subprocess.run([name, *stores, *build, str(self.folder)], check=True, capture_output=True)
            print(f"{name}, {what}: {time.monotonic() - began:.1f} s", flush=True)

    @staticmethod
    def _buildah(stores: list[str], *words: str) -> str:
        return subprocess.run(["buildah", *stores, *words], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    contest = Contest(Path(sys.argv[1]).absolute())
    contest.ours()
    contest.peer("buildah")
    contest.peer("podman")
