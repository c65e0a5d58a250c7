"""`cordee scan` beside picklescan, modelscan, fickling and modelaudit on one corpus; its speed, its memory, the warm gate; keys beside detect-secrets.

    python benchmarks/scan.py FOLDER [--peers BIN,BIN...] [--gigabytes 4]

FOLDER is made and filled by `scan_corpus.py`. `--peers` names folders with the peers' commands (each may have a virtual environment of its own).
Each peer is asked by its own function for one file, in a process of its own Python, with 60 s a file: any issue counts as detected (of
modelaudit those that are critical, errors or warnings), what it raises as a crash. Cordée is judged by the verdicts of one scan of the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import scan_corpus

# Each in a process of its own Python, over all files, one at a time; what it raises counts as a crash, and its work goes on.
_DRIVER = """
import contextlib, json, os, sys, signal, warnings
warnings.simplefilter("ignore")
signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
{setup}
said = {{}}
for path in json.load(open(sys.argv[1])):
    signal.alarm(60)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            said[path] = "bad" if judge(path) else "good"
    except BaseException as error:
        said[path] = "crash"
    signal.alarm(0)
json.dump(said, open(sys.argv[2], "w"))
"""
PEERS = {
    "picklescan": """
from picklescan.scanner import scan_file_path
def judge(path):
    result = scan_file_path(path)
    return result.infected_files > 0 or result.issues_count > 0 or result.scan_err""",
    "modelscan": """
from modelscan.modelscan import ModelScan
def judge(path):
    return ModelScan().scan(path)["summary"]["total_issues"] > 0""",
    "fickling": """
import fickling, fickling.loader
def judge(path):
    return not fickling.is_likely_safe(path)""",
    "modelaudit": """
from modelaudit.core import scan_model_directory_or_file
def judge(path):
    result = scan_model_directory_or_file(path, cache_enabled=False)
    issues = result.issues if hasattr(result, "issues") else result["issues"]
    return any(str(getattr(getattr(one, "severity", one), "value", one)).lower() in ("critical", "warning", "error") for one in issues)""",
}
CORDEE = (str(Path(sys.executable).parent / "cordee"),)


def main() -> None:
    """Measure, and print Markdown."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peers", default="")
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--only", default="corpus,keys,speed,gate")
    asked = parser.parse_args()
    folder = asked.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    parts = asked.only.split(",")
    if "corpus" in parts:
        truth = scan_corpus.write(folder / "corpus")
        said = {"cordee": _cordee(folder / "corpus", truth)}
        for name, setup in PEERS.items():
            program = shutil.which(name, path=asked.peers.replace(",", ":") or None)
            if program is not None:
                said[name] = _peer(str(Path(program).parent / "python"), setup, truth, folder)
        _corpus_table(truth, said)
        print(f"\ncanary written by a scan: {(folder / 'corpus' / 'canary').exists()}\n")
    if "keys" in parts:
        _keys(folder / "keys", shutil.which("detect-secrets", path=asked.peers.replace(",", ":") or None))
    if "speed" in parts:
        _speed(folder, asked.gigabytes)
    if "gate" in parts:
        _gate(folder / "job")


def _cordee(folder: Path, truth: list[dict[str, Any]]) -> dict[str, str]:
    done = subprocess.run([*CORDEE, "scan", str(folder), "--json"], capture_output=True, text=True)
    found: dict[str, str] = {}
    for one in json.loads(done.stdout)["findings"]:
        if one["severity"] in ("block", "unknown") and not one["rule"].startswith("secret"):
            found[one["path"]] = "bad"
    return {str(one["path"]): found.get(str(one["path"]), "good") for one in truth}


def _peer(python: str, setup: str, truth: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    paths, answers = folder / "paths.json", folder / "answers.json"
    paths.write_text(json.dumps([str(one["path"]) for one in truth]))
    answers.unlink(missing_ok=True)
    done = subprocess.run(
        [python, "-c", _DRIVER.format(setup=setup), str(paths), str(answers)], capture_output=True, text=True
    )
    if not answers.exists():
        sys.exit(f"{python} gave no answer: {done.stderr[-2000:]}")
    said: dict[str, str] = json.loads(answers.read_text())
    return said


def _corpus_table(truth: list[dict[str, Any]], said: dict[str, dict[str, str]]) -> None:
    families = list(dict.fromkeys((bool(one["bad"]), str(one["family"])) for one in truth))
    print("| family | files | " + " | ".join(said) + " |\n|---|---:|" + "---:|" * len(said))
    totals: dict[bool, Counter[str]] = defaultdict(Counter)
    for bad, family in families:
        paths = [str(one["path"]) for one in truth if one["family"] == family and bool(one["bad"]) == bad]
        counts = {name: sum(answers[path] == "bad" for path in paths) for name, answers in said.items()}
        totals[bad].update(counts | {"": len(paths)})
        what = f"{family}, detected" if bad else f"{family}, false alarms"
        print(f"| {what} | {len(paths)} | " + " | ".join(str(counts[name]) for name in said) + " |")
    for bad in (True, False):
        shares = " | ".join(
            f"{totals[bad][name]} ({100 * totals[bad][name] / max(1, totals[bad]['']):.1f} %)" for name in said
        )
        print(f"| **{'all, detected' if bad else 'all, false alarms'}** | {totals[bad]['']} | {shares} |")
    ill = {name: sum(answer in ("crash", "no answer") for answer in answers.values()) for name, answers in said.items()}
    print("| crashes or no answer | | " + " | ".join(str(ill[name]) for name in said) + " |")
    for path, answer in said["cordee"].items():
        bad = next(bool(one["bad"]) for one in truth if one["path"] == path)
        if (answer == "bad") != bad:
            print(f"- cordee says {answer}: {Path(path).parent.name}/{Path(path).name}")


def _random(
    seed: str, length: int, letters: str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
) -> str:
    data = b"".join(hashlib.sha256(f"{seed}{number}".encode()).digest() for number in range(length // 32 + 1))
    return "".join(letters[byte % len(letters)] for byte in data[:length])


def _keys(folder: Path, peer: str | None) -> None:
    """Keys in job scripts: each way to write one in each kind of file."""
    hexadecimal, upper = "0123456789abcdef", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
    keys = {
        "WANDB_API_KEY": lambda seed: _random(seed, 40, hexadecimal),
        "HF_TOKEN": lambda seed: "hf_" + _random(seed, 34),
        "AWS_ACCESS_KEY_ID": lambda seed: "AKIA" + _random(seed, 16, upper),
        "AWS_SECRET_ACCESS_KEY": lambda seed: _random(seed, 40),
        "GITHUB_TOKEN": lambda seed: "ghp_" + _random(seed, 36),
        "OPENAI_API_KEY": lambda seed: "sk-proj-" + _random(seed, 64),
        "ANTHROPIC_API_KEY": lambda seed: "sk-ant-api03-" + _random(seed, 80),
        "SLACK_TOKEN": lambda seed: "xoxb-" + _random(seed, 11, "0123456789") + "-" + _random(seed, 24),
        "COMET_API_KEY": lambda seed: _random(seed, 25),
        "NGC_API_KEY": lambda seed: "nvapi-" + _random(seed, 64),
    }
    forms = {
        "sh": "#!/bin/bash\n#SBATCH --nodes=2\nexport {name}={key}\nsrun python train.py\n",
        "quoted.sh": '#!/bin/bash\n{name}="{key}" srun python train.py --lr 1e-3\n',
        "option.sh": "#!/bin/bash\nsrun python train.py --{option} {key} --epochs 3\n",
        "py": 'import os\nos.environ["{name}"] = "{key}"\n',
        "toml": 'name = "t"\nrun = "python t.py"\n[env]\n{name} = "{key}"\n',
        "ipynb": '{{"cells": [{{"cell_type": "code", "source": ["%env {name}={key}\\n"], "outputs": []}}]}}\n',
        "env": "{name}={key}\n",
        "yaml": "env:\n  - name: {name}\n    value: {key}\n  - {name}: {key}\n",
        "trace.log": "+ export {name}={key}\n+ {name}={key}\n+ srun python train.py\n",
    }
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, (name, make) in enumerate(keys.items()):
        for form, template in forms.items():
            option = name.lower().replace("_", "-")
            (folder / f"{number}.{form}").write_text(template.format(name=name, key=make(name + form), option=option))
    for kind in ("rsa", "ed25519", "ecdsa"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(folder / kind)], stdin=subprocess.DEVNULL, check=True
        )
        os.unlink(folder / f"{kind}.pub")
    files = sorted(str(path) for path in folder.iterdir())
    done = subprocess.run([*CORDEE, "scan", str(folder), "--json"], capture_output=True, text=True)
    found = {one["path"] for one in json.loads(done.stdout)["findings"] if one["rule"].startswith("secret-")}
    told = {
        one["path"]
        for one in json.loads(done.stdout)["findings"]
        if one["rule"].startswith("secret-") and one["severity"] == "block"
    }
    print(f"keys in {len(files)} files: cordee {len(found)} ({len(told)} of them `block`)")
    print("- missed by cordee:", ", ".join(os.path.basename(path) for path in files if path not in found) or "none")
    scripts = [str(path) for path in _real_scripts()]
    done = subprocess.run([*CORDEE, "scan", "--json", *scripts], capture_output=True, text=True)
    false = {
        (one["path"], one["rule"]) for one in json.loads(done.stdout)["findings"] if one["rule"].startswith("secret-")
    }
    print(
        f"alarms on {len(scripts)} scripts of Python's and this machine's packages: cordee {len({path for path, _ in false})}"
    )
    for path, rule in sorted(false):
        print(f"- {rule}: {path}")
    if peer is not None:
        copies = folder.parent / "scripts"  # it looks below the folder in which it stands only
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir()
        for number, path in enumerate(scripts):
            shutil.copyfile(path, copies / f"{number}-{os.path.basename(path)}")
        for what, there in (("keys", folder), ("scripts", copies)):
            command = [peer, "scan", "--all-files", "--no-verify", "."]
            done = subprocess.run(command, capture_output=True, text=True, cwd=there)
            count = len(json.loads(done.stdout)["results"])
            print(f"detect-secrets on {what}: alarms in {count} of {len(list(there.iterdir()))} files")


def _real_scripts() -> list[Path]:
    """Return scripts that were written by others: Python's standard library, and shell scripts and configurations of the machine."""
    library = Path(os.__file__).parent
    found = [*sorted(library.glob("*.py"))[:150], *sorted((library / "asyncio").glob("*.py"))]
    for place in ("/usr/bin", "/etc", "/usr/share/doc"):
        found += sorted(Path(place).glob("**/*.sh"))[:60]
    import torch

    found += sorted((Path(torch.__file__).parent / "distributed").glob("**/*.py"))[:200]
    return [path for path in found if path.is_file() and os.access(path, os.R_OK)]


def _timed(command: list[str]) -> tuple[float, int]:
    """Return the CPU seconds that a command and its children took, and the largest memory of one of them in bytes."""
    program = "import resource,subprocess,sys\nsubprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL)\nu=resource.getrusage(resource.RUSAGE_CHILDREN)\nprint(u.ru_utime+u.ru_stime,u.ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True)
    seconds, memory = done.stdout.split()
    return float(seconds), int(memory) * 1024


def _speed(folder: Path, gigabytes: float) -> None:
    small = folder / "small.pkl"
    small.write_bytes(
        pickle.dumps(
            [
                {"name": f"row {number}", "value": number * 1.5, "parts": [number, number + 1]}
                for number in range(400_000)
            ]
        )
    )
    seconds = sorted(_timed([*CORDEE, "scan", str(small)])[0] for _ in range(3))[1]
    start = sorted(_timed([*CORDEE, "scan", str(Path(__file__))])[0] for _ in range(3))[1]
    print(
        f"many small objects: {small.stat().st_size / 1e6:.0f} MB, {small.stat().st_size / 1e6 / (seconds - start):.0f} MB per CPU second (start of {start:.2f} s taken off)"
    )
    weights = folder / "weights.pt"
    import torch

    count = int(gigabytes * 8)
    torch.save({f"layer.{number}": torch.randn(32 << 20) for number in range(count)}, weights)
    ratios, memory = [], 0
    for _ in range(3):
        hashed = _timed(["sha256sum", str(weights)])[0]
        scanned, used = _timed([*CORDEE, "scan", str(weights)])
        ratios.append(hashed / (scanned - start))
        memory = max(memory, used)
    print(
        f"weights of {weights.stat().st_size / 1e9:.1f} GB: {sorted(ratios)[1]:.2f} x the speed of sha256sum (CPU time, median of 3 pairs), largest memory {memory / 1e6:.0f} MB"
    )
    weights.unlink()


def _gate(job: Path) -> None:
    shutil.rmtree(job, ignore_errors=True)
    job.mkdir()
    for number in range(100):
        (job / f"part{number}.py").write_text(f"def f{number}(x):\n    return x + {number}\n" * 40)
    import torch

    torch.save({"w": torch.ones(1000)}, job / "model.pt")
    (job / "train.py").write_text("print(1)\n")
    command = [*CORDEE, "check", str(job), "--runs", str(job.parent / "runs")]
    os.environ["XDG_CACHE_HOME"] = str(job.parent / "cache")
    seconds: dict[str, list[float]] = defaultdict(list)
    for turn in range(7):
        for policy in ("off", "block"):
            (job / "cordee.toml").write_text(
                f'name = "t"\nrun = "python train.py model.pt"\n[scan]\npolicy = "{policy}"\n'
            )
            time.sleep(2.1)
            if policy == "block":
                shutil.rmtree(job.parent / "cache", ignore_errors=True)
                seconds["cold"].append(_timed(command)[0])
            seconds[policy].append(_timed(command)[0])
        del turn
    middle = {name: sorted(values)[len(values) // 2] for name, values in seconds.items()}
    print(
        f'gate of 102 files, CPU seconds over `policy = "off"` ({middle["off"]:.2f} s), medians of 7: cold {middle["cold"] - middle["off"]:.2f}, warm {middle["block"] - middle["off"]:.2f}'
    )


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
