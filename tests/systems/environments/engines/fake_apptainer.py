"""Answers as Apptainer does, without containers: commands run on the host, instances are files that hold a process's id."""

import os
import signal
import subprocess
import sys
from pathlib import Path

STATE = Path(__file__).parent / "state"


def main(words):
    STATE.mkdir(exist_ok=True)
    with (STATE / "calls").open("a") as calls:
        calls.write("\0".join(words) + "\n")
    if words[:2] == ["instance", "start"]:
        if not os.path.exists(words[-2]):
            print(f"FATAL:   while extracting {words[-2]}: no such file", file=sys.stderr)
            return 255
        process = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        (STATE / words[-1]).write_text(str(process.pid))
        return 0
    if words[:2] == ["instance", "stop"]:
        os.kill(int((STATE / words[-1]).read_text()), signal.SIGKILL)
        (STATE / words[-1]).unlink()
        return 0
    options = [word for word in words[1:] if word.startswith("--")]
    image, *argv = words[1 + len(options) :]
    if image.startswith("instance://") and not (STATE / image.removeprefix("instance://")).exists():
        print(f"FATAL:   no instance found with name {image}", file=sys.stderr)
        return 255
    os.chdir(next(word for word in options if word.startswith("--pwd=")).removeprefix("--pwd="))
    handed = "APPTAINERENV_"
    env = {key.removeprefix(handed): value for key, value in os.environ.items() if key.startswith(handed)}
    return os.execvpe(argv[0], argv, {**env, "HOME": os.environ["HOME"]})


sys.exit(main(sys.argv[1:]))
