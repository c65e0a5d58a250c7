"""Apptainer behind the seam: environments into command lines, and what a machine lacks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Optional

import cordee
from cordee.systems.environments.node.document import Environment
from cordee.systems.environments.node.engines._base import Engine, EngineError, EngineLaunch, MissingCapability
from cordee.systems.environments.node.engines.apptainer.argv import exec_words, start_words

_PROGRAMS = ("apptainer", "singularity")
_BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from cordee.systems.environments.node.engines.apptainer.main import main; main(sys.argv[2:])"


class ApptainerEngine(Engine):
    """Runs commands by `apptainer exec`, and holds containers as instances of Apptainer's."""

    name = "apptainer"

    def missing(self, environment: Environment) -> list[MissingCapability]:
        found = []
        if environment.root is not None and environment.root.kind == "host":
            text = "Apptainer runs images, and this environment names none"
            found.append(MissingCapability("image", text, "take the engine namespace"))
        if _program() is None:
            text = "neither apptainer nor singularity is on PATH"
            found.append(
                MissingCapability("apptainer", text, "load the site's module for it, or take the engine namespace")
            )
        found += [
            MissingCapability(
                "mount-source",
                f"the source of a mount does not exist: {mount.source}",
                "make it, or take the mount out",
            )
            for mount in environment.mounts
            if not os.path.exists(mount.source)
        ]
        found += [
            MissingCapability(table, f"Apptainer is not told of {table}", "take the engine namespace")
            for table, asked in (("[stack] overlay", environment.overlay), ("[startup]", environment.startup))
            if asked
        ]
        try:
            start_words(environment, "name")
        except EngineError as error:
            if not found:
                found.append(
                    MissingCapability(
                        "apptainer", f"{error.text}: {error.given}", error.next or "take the engine namespace"
                    )
                )
        return found

    def argv(self, environment: Environment, launch: EngineLaunch) -> list[str]:
        command = environment.command(launch.argv)
        if not command:
            raise EngineError(
                "there is no command to run, and the image names none", given=environment.image, next="give a command"
            )
        workdir = launch.workdir or environment.begins_in()
        return [*_first_words(), "run", _program() or _PROGRAMS[0], *exec_words(environment, command, workdir, _gpus())]

    def hold(self, environment: Environment) -> list[str]:
        # The holder puts its own name for the instance last.
        words = start_words(environment, "", _gpus())
        return [*_first_words(), "hold", _program() or _PROGRAMS[0], environment.begins_in(), *words[:-1]]


def _first_words() -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _BOOT, str(Path(cordee.__file__).parents[1])]


def _program() -> Optional[str]:
    return next((found for found in map(shutil.which, _PROGRAMS) if found), None)


def _gpus() -> tuple[str, ...]:
    nvidia, amd = os.path.exists("/dev/nvidiactl"), os.path.exists("/dev/kfd")
    return (*(("--nv",) if nvidia else ()), *(("--rocm",) if amd else ()))
