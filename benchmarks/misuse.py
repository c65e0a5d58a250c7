"""How often signs of misuse are seen in programs that crack, mine, train, prepare data, compile and simulate.

    python benchmarks/misuse.py [SECONDS]

Each program runs for so many seconds (default 9) with a look a second; six looks in a row decide, as in a run, where they
are ten seconds apart. What is not installed is said and left out.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cordee.core.clock import monotonic
from cordee.machine.processes.tree import tree_of
from cordee.systems.misuse.node.signs import MisuseSigns

MINER = r"""
#include <stdint.h>
static uint32_t r(uint32_t x,int n){return x>>n|x<<(32-n);}
int main(){uint32_t a=0x6a09e667,b=0xbb67ae85,n=0;for(;;){for(int i=0;i<64;i++){a+=r(b,6)^r(b,11)^n;b+=r(a,2)^r(a,13)^i;}if((a&0xffffffff)==0x13)n^=a;n++;}}
"""
MONTE_CARLO = r"""
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
int main(){double s=0;for(long n=1;;n++){double x=drand48(),y=drand48();s+=sqrt(x*x+y*y)<1;if(n%20000000==0){printf("%f\n",4*s/n);fflush(stdout);}}}
"""
NUMPY = "import numpy as n\nfor i in range(10**9): a = n.random.rand(300, 300); (a @ a).sum()"
TORCH = """
import torch
torch.set_num_threads(1)
m = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)); o = torch.optim.SGD(m.parameters(), 0.01)
while True:
    x = torch.randn(64, 256); loss = m(x).square().mean(); o.zero_grad(); loss.backward(); o.step()
"""
PREPARE = """
import gzip, json, os, sys
while True:
    with gzip.open(sys.argv[1] + "/out.gz", "wb") as out:
        for number in range(20000):
            out.write(json.dumps({"id": number, "text": os.urandom(64).hex()}).encode())
    with gzip.open(sys.argv[1] + "/out.gz", "rb") as back: back.read()
"""
SORT = "import random\nwhile True: sorted(random.random() for _ in range(200000))"
MISUSE = ("john", "john, renamed", "miner, renamed", "miner, called xmrig")


def programs(folder: Path) -> dict[str, list[str] | None]:
    """Return the commands by name; None: it is not there."""
    hashes = folder / "hashes"
    hashes.write_text("a:$1$abcdefgh$irWbblnpmw.5z7wgBnprh0\n")
    built = {}
    for name, source in (("miner", MINER), ("monte", MONTE_CARLO)):
        (folder / f"{name}.c").write_text(source)
        subprocess.run(["cc", "-O2", "-o", folder / name, folder / f"{name}.c", "-lm"], check=True)
        built[name] = str(folder / name)
    shutil.copy(built["miner"], folder / "xmrig")
    john = shutil.which("john") or shutil.which("john", path="/usr/sbin")
    renamed = None
    if john:
        renamed = [
            str(shutil.copy(john, folder / "train")),
            "--incremental",
            "--session=s2",
            str(hashes),
        ]
        john_words = [john, "--incremental", "--session=s1", str(hashes)]
    (folder / "big.cpp").write_text(
        '#include <regex>\n#include <map>\n#include <iostream>\nint main(){std::regex r("a+b");std::map<int,std::string> m;std::cout<<m.size();}\n'
    )
    compiling = f"while true; do c++ -O2 -o {folder}/big {folder}/big.cpp; done"
    has_torch = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, check=False).returncode == 0
    return {
        "john": john_words if john else None,
        "john, renamed": renamed,
        "miner, renamed": [built["miner"]],
        "miner, called xmrig": [str(folder / "xmrig")],
        "training (torch)": [sys.executable, "-c", TORCH] if has_torch else None,
        "linear algebra (numpy)": [sys.executable, "-c", NUMPY],
        "preprocessing (gzip, JSON)": [sys.executable, "-c", PREPARE, str(folder)],
        "compilation (C++)": ["sh", "-c", compiling],
        "archive (tar, gzip)": [
            "sh",
            "-c",
            f"while true; do tar czf {folder}/t.tgz /usr/lib/python3*/ 2>/dev/null; done",
        ],
        "sorting (Python)": [sys.executable, "-c", SORT],
        "Monte Carlo (C, prints now and then)": [built["monte"]],
        "idle": ["sleep", "1000"],
    }


def look(command: list[str], seconds: float, folder: Path) -> tuple[str, float]:
    """Return the most that was seen while a command ran, in words, and the processor time that a look took."""
    with open(folder / "out", "wb") as out:
        child = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=folder,
            env={**os.environ, "HOME": str(folder)},
        )
    signs, seen, cost, looks = MisuseSigns(), "", 0.0, 0
    try:
        time.sleep(1)
        until = monotonic() + seconds
        while monotonic() < until:
            began = time.process_time()
            found = signs.look(set(tree_of(child.pid)), monotonic(), False, ())
            cost, looks = cost + time.process_time() - began, looks + 1
            if found is not None:
                seen = f"{'name' if found.certain else 'work'}: {', '.join(found.words)}"
            time.sleep(1)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return seen, cost / max(looks, 1)


def main() -> None:
    """Print a table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 9.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("| program | misuse | seen | a look, ms |\n|---|---|---|---|")
        for program, command in programs(folder).items():
            if command is None:
                print(f"| {program} | | not installed here | |")
                continue
            seen, cost_s = look(command, seconds, folder)
            print(
                f"| {program} | {'yes' if program in MISUSE else 'no'} | {seen or '-'} | {cost_s * 1e3:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
