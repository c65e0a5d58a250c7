"""Wheels, environments and snapshots of advisories, made here."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, needs: tuple[str, ...] = (), **more: str) -> Path:
    """Write a wheel: a module, what it needs, and more files by their paths (`__` for `/`)."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nLicense-Expression: MIT\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in needs)
    files = {
        f"{module}/__init__.py": "",
        f"{info}/METADATA": metadata + "\nName: not-this-one\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: made\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        **{path.replace("INFO", info): text for path, text in more.items()},
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}\n"
        for path, text in files.items()
    )
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    place = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return place


def venv(folder: Path, wheels: list[Path]) -> Path:
    """Make a venv by Python's own module, and have pip install wheels into it; no network is asked."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if wheels:
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(folder / "bin" / "python"),
            "install",
            "--no-index",
            "--no-deps",
            "-q",
        ]
        subprocess.run([*pip, "--no-compile", "--disable-pip-version-check", *map(str, wheels)], check=True)
    return folder


def record(
    identifier: str, name: str, events: list[dict[str, str]], ecosystem: str = "PyPI", **more: object
) -> dict[str, object]:
    """Return a record of OSV."""
    return {
        "id": identifier,
        "modified": "2026-11-20T10:00:00Z",
        "summary": f"a hole in {name}",
        "affected": [
            {"package": {"name": name, "ecosystem": ecosystem}, "ranges": [{"type": "ECOSYSTEM", "events": events}]}
        ],
        **more,
    }


def snapshot(path: Path, *records: object) -> Path:
    """Write a snapshot as OSV exports it: one zip, one JSON each."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, one in enumerate(records):
            archive.writestr(f"{number}.json", one if isinstance(one, (str, bytes)) else json.dumps(one))
    path.write_bytes(data.getvalue())
    return path
