"""How often signs of misuse are seen in programs that crack, mine, train, prepare data, compile and simulate.

    python benchmarks/misuse.py [SECONDS]

All programs run beside each other for so many seconds (default 90), with a look each ten seconds as in a run; six looks in a row
decide. What is not installed is said and left out.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
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
_EVERY_S = 10.0
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


class Watched:
    """One program that runs, and what was seen of it."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name, self.seen, self.cost_s, self.looks = name, "", 0.0, 0
        with open(folder / "out", "ab") as out:
            env = {**os.environ, "HOME": str(folder)}
            self.child = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=folder,
                env=env,
            )
        self._signs = MisuseSigns()

    def look(self) -> None:
        """Look once."""
        if self.child.poll() is not None:
            self.seen = f"ended with {self.child.returncode}"
            return
        began = time.thread_time()
        found = self._signs.look(set(tree_of(self.child.pid)), monotonic(), False, ())
        self.cost_s, self.looks = self.cost_s + time.thread_time() - began, self.looks + 1
        if found is not None:
            self.seen = f"{'name' if found.certain else 'work'}: {', '.join(found.words)}"

    def end(self) -> None:
        """Kill it with all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def main() -> None:
    """Print a table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 90.0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what it has started ends with it
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        commands = programs(folder)
        running = [Watched(program, command, folder) for program, command in commands.items() if command is not None]
        try:
            until = monotonic() + seconds
            while monotonic() < until:
                time.sleep(_EVERY_S)
                for one in running:
                    one.look()
        finally:
            for one in running:
                one.end()
    print("| program | misuse | seen | a look, ms |\n|---|---|---|---|")
    for one in running:
        cost_ms = one.cost_s / max(one.looks, 1) * 1e3
        print(f"| {one.name} | {'yes' if one.name in MISUSE else 'no'} | {one.seen or '-'} | {cost_ms:.2f} |")
    print(
        f"\nnot installed here: {', '.join(name for name, command in commands.items() if command is None) or 'nothing'}"
    )


if __name__ == "__main__":
    main()
