#!/usr/bin/env python3
"""The site's command for root: counts what jobs send by destination, and cuts a job or the node off.

It is one file of the standard library; `cordee egress guard` prints it, and a site puts it where only root can write. It
works with nftables and control groups of version 2, so no process of a job can see, slow or end what it does.

    cordee-egress count JOB CGROUP        begin to count; in the prolog
    cordee-egress read JOB                print what was counted, as JSON
    cordee-egress serve FOLDER            write what is counted into FOLDER/JOB.json each second, until SIGTERM
    cordee-egress uncount JOB             end it; in the epilog
    cordee-egress revoke JOB [CGROUP]     let nothing of a job out any more; --keep NETWORK is spared; without CGROUP
                                          Slurm's own processes tell which it is, else all of the job's user is cut off
    cordee-egress revoke node             let nothing of the whole node out any more
    cordee-egress restore JOB             take it back; or: restore node
    cordee-egress list                    what is counted and what is revoked
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

TABLE = "cordee_egress"
_JOB = re.compile(r"[A-Za-z0-9_]{1,48}$")
_NODE = "node"  # in place of a job's number: all of the node
_TREE = "/sys/fs/cgroup"
_MOST_DESTINATIONS = 65535
_SECOND_S = 1.0
# Loopback is no way out; neighbours must be found, or restoring takes minutes.
_SPARED = ("oifname lo accept", "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept")


class GuardError(Exception):
    """It was not done; the text says why."""


def nft(script: str, *words: str) -> str:
    """Run a script by nft, whole or not at all, or else what `words` ask for, and return what it prints.

    Raises:
        GuardError: nft is not there, or refuses.
    """
    try:
        done = subprocess.run(
            ["nft", *(words or ("-f", "-"))], input=script, capture_output=True, text=True, timeout=30, check=False
        )
    except FileNotFoundError:
        raise GuardError("nft is not installed") from None
    except subprocess.TimeoutExpired:
        raise GuardError("nft does not answer") from None
    if done.returncode != 0:
        raise GuardError(f"nft refuses: {(done.stderr.strip().splitlines() or ['no reason'])[0]}")
    return done.stdout


def matched(cgroup: str, tree: str = _TREE) -> str:
    """Return the expression that holds for packets of sockets that were made in a control group or below it.

    Args:
        cgroup: its folder below the mount of version 2, as /proc/PID/cgroup has it; or the whole path.

    Raises:
        GuardError: there is no such group.
    """
    path = cgroup[len(tree) :] if cgroup.startswith(tree + "/") else cgroup
    path = path.strip("/")
    words = path.split("/")
    if not path or any(word in ("", ".", "..") or '"' in word or "\n" in word for word in words):
        raise GuardError(f"not the folder of a control group: {cgroup!r}")
    level = len(words)
    if not os.path.isfile(os.path.join(tree, path, "cgroup.procs")) or not _is_version_2(os.path.join(tree, path)):
        hybrid = os.path.join(tree, "unified", path)
        if not os.path.isdir(hybrid):
            raise GuardError(f"there is no control group of version 2 {path!r} below {tree}")
        path = os.path.join("unified", path)
    if path.startswith("unified/") and level == path.count("/") + 1:
        level -= 1
    return f'socket cgroupv2 level {level} "{path}"'


def _is_version_2(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "cgroup.type")) or os.path.exists(os.path.join(folder, "cgroup.events"))


def base() -> str:
    """Return the script that makes the table and its chains, where they are not there."""
    return f"""
table inet {TABLE} {{
  chain revoked {{ type filter hook output priority -20; policy accept; }}
  chain revoked_forward {{ type filter hook forward priority -20; policy accept; }}
  chain sent {{ type filter hook output priority -10; policy accept; }}
  chain received {{ type filter hook input priority -10; policy accept; }}
}}
"""


def count(job: str, cgroup: str) -> None:
    """Begin to count what a job sends and receives; counting again changes nothing."""
    if f"j{job}_out4" in _names("set"):
        return
    expression = matched(cgroup)
    lines = [base()]
    for chain, end, address in (("sent", "out", "daddr"), ("received", "in", "saddr")):
        for family, kind in (("ip", "ipv4_addr"), ("ip6", "ipv6_addr")):
            name = f"j{job}_{end}{4 if family == 'ip' else 6}"
            size = f"size {_MOST_DESTINATIONS}; flags dynamic; counter;"
            lines.append(f"add set inet {TABLE} {name} {{ type {kind}; {size} }}")
            rule = f"{expression} update @{name} {{ {family} {address} }}"
            lines.append(f'add rule inet {TABLE} {chain} {rule} comment "{job}"')
        lines.append(f"add counter inet {TABLE} j{job}_{end}")
        lines.append(f'add rule inet {TABLE} {chain} {expression} counter name "j{job}_{end}" comment "{job}"')
    nft("\n".join(lines))


def uncount(job: str) -> None:
    """End counting."""
    lines = _without_rules(("sent", "received"), job)
    names = _names("set")
    lines += [f"delete set inet {TABLE} {name}" for name in names if name.startswith(f"j{job}_")]
    lines += [f"delete counter inet {TABLE} {name}" for name in _names("counter") if name.startswith(f"j{job}_")]
    nft("\n".join(lines))


def read(job: str) -> dict:
    """Return what was counted of a job: bytes sent and received by destination, headers included.

    Raises:
        GuardError: it is not counted.
    """
    return readings().get(job) or _fail(f"job {job} is not counted")


def readings() -> dict:
    """Return what was counted of all jobs."""
    jobs: dict = {}
    totals: dict = {}
    for one in _ruleset():
        if "set" in one:
            match = re.match(r"j(\w+)_(out|in)[46]$", one["set"]["name"])
            if match is None:
                continue
            found = jobs.setdefault(match[1], {})
            for element in one["set"].get("elem", ()):
                about = element.get("elem", {}) if isinstance(element, dict) else {}
                if "counter" in about:
                    both = found.setdefault(about["val"], [0, 0])
                    both[match[2] == "in"] += about["counter"]["bytes"]
        elif "counter" in one:
            match = re.match(r"j(\w+)_(out|in)$", one["counter"]["name"])
            if match is not None:
                totals.setdefault(match[1], [0, 0])[match[2] == "in"] = one["counter"]["bytes"]
    documents = {}
    for job, found in jobs.items():
        whole = totals.get(job, [0, 0])
        rest = [max(0, whole[at] - sum(both[at] for both in found.values())) for at in (0, 1)]
        if any(rest) and len(found) >= _MOST_DESTINATIONS:
            found["?"] = rest
        documents[job] = {
            "schema": "cordee.counters/1",
            "job": job,
            "at": time.time(),
            "total": whole,
            "destinations": found,
        }
    return documents


def serve(folder: str) -> None:
    """Write what is counted of each job into a file of its own each second, until SIGTERM; others can read it."""
    ended: list = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.append(1))
    os.makedirs(folder, mode=0o755, exist_ok=True)
    while not ended:
        now = readings()
        for job, document in now.items():
            descriptor, temporary = tempfile.mkstemp(dir=folder)
            with os.fdopen(descriptor, "w") as file:
                json.dump(document, file)
                os.fchmod(file.fileno(), 0o644)
            os.replace(temporary, os.path.join(folder, f"{job}.json"))
        for name in os.listdir(folder):
            if name.endswith(".json") and name[: -len(".json")] not in now:
                os.unlink(os.path.join(folder, name))
        time.sleep(_SECOND_S)


def revoke(job: str, cgroup: str | None, keep: list) -> str:
    """Let no packet of a job out of the node, from now on, also of connections that are there; doing so again changes nothing.

    Returns:
        what was cut off, in words.

    Raises:
        GuardError: there is no such group or job, or it is root's.
    """
    if cgroup is not None:
        _revoke(f"r_{job}", [matched(cgroup)], ("revoked",), keep)
        return f"revoked {job}"
    groups, users = slurm_job(job)
    if groups:
        _revoke(f"r_{job}", [matched(group) for group in sorted(groups)], ("revoked",), keep)
        return f"revoked {job}: {', '.join(sorted(groups))}"
    _revoke(f"r_{job}", [f"meta skuid {user}" for user in sorted(users)], ("revoked",), keep)
    named = ", ".join(map(str, sorted(users)))
    return (
        f"revoked {job}: all that user {named} does on this node, as no control group of version 2 holds the job alone"
    )


def slurm_job(job: str, proc: str = "/proc") -> tuple:
    """Return a job's control groups of version 2, and the users of its processes, by what Slurm's own processes have started.

    Raises:
        GuardError: nothing of that job runs here, or it is root's and in no group of its own.
    """
    parents: dict = {}
    owners: dict = {}
    steps = set()
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            with open(f"{proc}/{pid}/cmdline", "rb") as file:
                words = file.read(128)
            with open(f"{proc}/{pid}/status") as file:
                status = dict(line.split(":", 1) for line in file if ":" in line)
        except (OSError, ValueError):
            continue  # it has ended
        parents[pid], owners[pid] = status["PPid"].strip(), int(status["Uid"].split()[0])
        if owners[pid] == 0 and re.match(rf"slurmstepd: \[{job}[.\]]".encode(), words):
            steps.add(pid)
    below: set = set()
    found = set(steps)
    while found:
        below |= found
        found = {pid for pid, parent in parents.items() if parent in found} - below
    if not steps:
        raise GuardError(f"no process of Slurm's job {job} runs here")
    groups = {_group_of_job(f"{proc}/{pid}/cgroup", job) for pid in below} - {""}
    users = {owners[pid] for pid in below} - {0}
    if not groups and not users:
        raise GuardError(f"job {job} is root's, and in no control group of its own: name one")
    return groups, users


def _group_of_job(path: str, job: str) -> str:
    """Return the group of version 2 that holds a job as a whole, by /proc/PID/cgroup; empty: there is none."""
    try:
        with open(path) as file:
            paths = [line[3:].strip() for line in file if line.startswith("0::")]
    except OSError:
        return ""
    found = re.match(rf".*/job_{job}(?=/|$)", paths[0]) if paths else None
    return found.group() if found else ""


def revoke_node(keep: list) -> None:
    """Let no packet out of the node, of nobody."""
    _revoke(f"r_{_NODE}", [""], ("revoked", "revoked_forward"), keep)


def restore(name: str) -> None:
    """Take a revocation back.

    Raises:
        GuardError: nothing was revoked.
    """
    lines = _without_rules(("revoked", "revoked_forward"), f"r_{name}")
    if not lines:
        raise GuardError(f"nothing is revoked for {name}")
    nft("\n".join(lines))


def _revoke(mark: str, expressions: list, chains: tuple, keep: list) -> None:
    lines = [base(), *_without_rules(chains, mark)]
    for chain in chains:
        spared = [*_SPARED, *(_kept(network) for network in keep)]
        for expression in expressions:
            for words in (*spared, "counter drop"):
                lines.append(f'add rule inet {TABLE} {chain} {expression} {words} comment "{mark}"')
    nft("\n".join(lines))


def _kept(network: str) -> str:
    try:
        parsed = ipaddress.ip_network(network, strict=False)
    except ValueError:
        raise GuardError(f"--keep {network!r} is no network") from None
    return f"{'ip' if parsed.version == 4 else 'ip6'} daddr {parsed} accept"


def listed() -> dict:
    """Return which jobs are counted, and what is revoked with the bytes that were held back since."""
    revoked: dict = {}
    for one in _ruleset():
        rule = one.get("rule", {})
        if rule.get("comment", "").startswith("r_"):
            held = [part["counter"]["bytes"] for part in rule.get("expr", ()) if "counter" in part]
            name = rule["comment"][2:]
            revoked[name] = revoked.get(name, 0) + sum(held)
    return {"counted": sorted(readings()), "revoked": revoked}


def _ruleset() -> list:
    try:
        return list(json.loads(nft("", "-j", "list", "table", "inet", TABLE))["nftables"])
    except GuardError as error:
        if "No such file" in str(error):
            return []
        raise


def _names(kind: str) -> list:
    return [one[kind]["name"] for one in _ruleset() if kind in one]


def _without_rules(chains: tuple, mark: str) -> list:
    rules = [one["rule"] for one in _ruleset() if "rule" in one]
    return [
        f"delete rule inet {TABLE} {rule['chain']} handle {rule['handle']}"
        for rule in rules
        if rule["chain"] in chains and rule.get("comment") == mark
    ]


def _fail(text: str) -> dict:
    raise GuardError(text)


def main(words: list) -> int:
    """Do what the words say; exit code 1: it was not done, 2: the words are wrong."""
    parser = argparse.ArgumentParser(prog="cordee-egress", description="Counts what jobs send, and cuts them off.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, options in (
        ("count", ("job", "cgroup")),
        ("uncount", ("job",)),
        ("read", ("job",)),
        ("serve", ("folder",)),
        ("revoke", ("job", "cgroup?")),
        ("restore", ("job",)),
        ("list", ()),
    ):
        verb = verbs.add_parser(name)
        for option in options:
            verb.add_argument(option.rstrip("?"), nargs="?" if option.endswith("?") else None)
        if name == "revoke":
            verb.add_argument("--keep", action="append", default=[], metavar="NETWORK", help="stays reachable")
    given = parser.parse_args(words)
    job = getattr(given, "job", None)
    if job is not None and not _JOB.match(job):
        parser.error(f"not the number of a job: {job!r}")
    try:
        _do(given)
    except (GuardError, OSError) as error:
        print(f"cordee-egress: {error}", file=sys.stderr)
        return 1
    return 0


def _do(given: argparse.Namespace) -> None:
    if given.verb == "count":
        count(given.job, given.cgroup)
    elif given.verb == "uncount":
        uncount(given.job)
    elif given.verb == "read":
        print(json.dumps(read(given.job)))
    elif given.verb == "serve":
        serve(given.folder)
    elif given.verb == "list":
        print(json.dumps(listed()))
    elif given.verb == "restore":
        restore(given.job)
        print(f"restored {given.job}")
    elif given.job == _NODE:
        revoke_node(given.keep)
        print("revoked the node")
    else:
        print(revoke(given.job, given.cgroup, given.keep))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
