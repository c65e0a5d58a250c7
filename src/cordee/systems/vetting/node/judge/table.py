"""The allocation document as a table that a person reads: nodes by checks, reasons, and what to do next."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

from cordee.core.hostlist import fold_nodes

COLUMNS = 110
_MOST_ROWS = 24
_MOST_REASONS = 24
_LONGEST_NAME = 28
_LONGEST_NODES = 40
_LONGEST_REASON = 400
_MOST_STEPS = 3
_MARKS = {"pass": "✓", "warn": "!", "fail": "✗", "unknown": "?", "skip": "–", "": " "}
_COLOURS = {
    "pass": "32",
    "healthy": "32",
    "continue": "32",
    "warn": "33",
    "suspect": "33",
    "exclude": "33",
    "unknown": "35",
    "fail": "31",
    "bad": "31",
    "abort": "31",
    "skip": "2",
}
_OUTCOMES = {
    "continue": ("OK", "{left} of {all} nodes usable"),
    "exclude": ("EXCLUDE", "{left} of {all} nodes usable"),
    "abort": ("ABORT", "do not start a job on these nodes"),
}


class VerdictRow(NamedTuple):
    """Nodes with the same verdict and the same status of every check."""

    verdict: str
    statuses: tuple[str, ...]
    nodes: list[str]
    excluded: bool


class VerdictReason(NamedTuple):
    """What the same check says of some nodes in the same words; `rule` is what it matched, or nothing."""

    nodes: list[str]
    check: str
    status: str
    evidence: str
    rule: dict[str, Any]


def columns(document: dict[str, Any]) -> list[str]:
    """Return the names of all checks of the document, in the order in which they first appear."""
    found: dict[str, None] = {}
    for node in document["nodes"]:
        found.update((name_of(result), None) for result in node["results"])
    return list(found)


def name_of(result: dict[str, Any]) -> str:
    """Return what the protocol calls a result's check."""
    return str(result.get("name") or result["check"])


def rows(document: dict[str, Any]) -> list[VerdictRow]:
    """Return the nodes, those that look the same together: excluded ones first, then others that deviate, healthy last."""
    names, excluded = columns(document), set(document["exclude"])
    found: dict[tuple[str, tuple[str, ...], bool], VerdictRow] = {}
    for node in document["nodes"]:
        by_name = {name_of(result): result["status"] for result in node["results"]}
        statuses = tuple(by_name.get(name, "") for name in names)
        key = (node["verdict"], statuses, node["node"] in excluded)
        found.setdefault(key, VerdictRow(node["verdict"], statuses, [], key[2])).nodes.append(node["node"])
    return sorted(found.values(), key=lambda row: (not row.excluded, row.verdict == "healthy", len(row.nodes)))


def reasons(document: dict[str, Any]) -> list[VerdictReason]:
    """Return what speaks against nodes, worst first; what holds for several nodes is said once."""
    found: dict[tuple[str, str, str], VerdictReason] = {}
    for node in document["nodes"]:
        for result in node["results"]:
            if result["status"] not in ("pass", "skip"):
                key = (name_of(result), result["status"], result["evidence"])
                entry = found.setdefault(key, VerdictReason([], *key, result.get("rule") or {}))
                entry.nodes.append(node["node"])
    order = {"fail": 0, "unknown": 1, "warn": 2}
    return sorted(found.values(), key=lambda reason: order.get(reason.status, 3))


def fold(nodes: list[str], most: int = _LONGEST_NODES) -> str:
    """Return nodes as Slurm writes them, cut where that is too long."""
    text = fold_nodes(nodes)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def line(text: object, most: int = _LONGEST_REASON) -> str:
    """Return what a check or a person wrote as one line that a terminal only shows."""
    words = " ".join(str(text).split())
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in words)
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def pair_words(document: dict[str, Any]) -> str:
    """Return what pairs of nodes measured in one line, empty when none did."""
    count = len(document["pairs"])
    speeds = sorted(entry["bytes_per_s"] for entry in document["pairs"] if entry.get("bytes_per_s"))
    words = f"{count} pair{'s' if count > 1 else ''} measured" if count else ""
    if speeds:
        words += f": slowest {speeds[0] / 1e9:.3g} GB/s, median {speeds[len(speeds) // 2] / 1e9:.3g} GB/s"
    return words + (f"; {count - len(speeds)} without a result" if len(speeds) < count else "")


def render_table(document: dict[str, Any], *, colour: bool = False, width: int = COLUMNS) -> str:
    """Return the table with reasons and what to do next.

    Args:
        document: `cordee.vetting/1`.
        colour: whether a terminal shows it: with colours and marks instead of words.
        width: in characters; columns get numbers where the checks' names do not fit.
    """
    paint = _painted if colour else _plain
    parts = [
        list(_head(document, paint)),
        list(_table(document, paint, colour, width)),
        list(_reasons(document, paint)),
    ]
    parts += [list(_remarks(document)), list(_next(document))]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _plain(text: str, kind: str) -> str:
    return text


def _painted(text: str, kind: str) -> str:
    return f"\x1b[{_COLOURS[kind]}m{text}\x1b[0m" if kind in _COLOURS else text


def _head(document: dict[str, Any], paint: Any) -> Iterator[str]:
    count = len(document["nodes"])
    word, outcome = _OUTCOMES[document["verdict"]]
    outcome = outcome.format(all=count, left=count - len(document["exclude"]))
    name = line(document.get("protocol") or "vetting", 80)
    yield f"{name}: {paint(word, document['verdict'])} - {outcome} ({document['seconds']:.1f} s)"
    yield line(document["reason"])


def _table(document: dict[str, Any], paint: Any, marks: bool, width: int) -> Iterator[str]:
    names, found = columns(document), rows(document)
    shown = found[:_MOST_ROWS]
    if not names:
        return
    first = max(len(fold(row.nodes)) for row in shown) + 2
    titles = [line(name, _LONGEST_NAME) for name in names]
    numbered = first + 10 + sum(max(len(title), 7) + 2 for title in titles) > width
    if numbered:
        titles = [str(number) for number in range(1, len(names) + 1)]
    sizes = [max(len(title), 1 if marks else 7) + 2 for title in titles]
    yield (" " * (first + 10) + "".join(title.ljust(size) for title, size in zip(titles, sizes))).rstrip()
    for row in shown:
        cells = [_MARKS.get(status, "?") if marks else status for status in row.statuses]
        body = "".join(paint(cell.ljust(size), status) for cell, size, status in zip(cells, sizes, row.statuses))
        yield (fold(row.nodes).ljust(first) + paint(row.verdict.ljust(10), row.verdict) + body).rstrip()
    hidden = sum(len(row.nodes) for row in found[_MOST_ROWS:])
    if hidden:
        yield f"and {hidden} more nodes, in the document"
    if numbered:
        yield ""
        for number, name in enumerate(names, 1):
            yield f"  {number:>2} {line(name, 80)}"


def _reasons(document: dict[str, Any], paint: Any) -> Iterator[str]:
    found = reasons(document)
    for reason in found[:_MOST_REASONS]:
        rule = f" [{reason.rule['id']}]" if reason.rule.get("id") else ""
        where = fold(reason.nodes)
        yield f"{where}: {line(reason.check, 80)} {paint(reason.status, reason.status)}: {line(reason.evidence)}{rule}"
    if len(found) > _MOST_REASONS:
        yield f"and {len(found) - _MOST_REASONS} more reasons, in the document"


def _remarks(document: dict[str, Any]) -> Iterator[str]:
    for entry in document.get("unavailable") or []:
        where = f"on {len(entry['nodes'])} nodes" if len(entry["nodes"]) > 1 else f"on {entry['nodes'][0]}"
        yield f"could not be tested {where}: {entry['check']}: {line(entry['reason'])}"
    for entry in document.get("confused") or []:
        yield f"no node is blamed, because the cause is shared: {line(entry['text'])}"
    for entry in document.get("links") or []:
        yield f"link: {line(entry['text'])}"
    if document.get("pairs"):
        yield pair_words(document)


def _next(document: dict[str, Any]) -> Iterator[str]:
    if document["verdict"] == "exclude":
        yield f"next: srun --exclude={fold_nodes(document['exclude'])} ... (or --exclude=./exclude.txt)"
    steps: dict[str, None] = {}
    for reason in reasons(document):
        for step in (reason.rule.get("recovery") or [])[:1]:
            steps[f"next: {fold(reason.nodes)}: {line(step)}"] = None
    yield from list(steps)[:_MOST_STEPS]
