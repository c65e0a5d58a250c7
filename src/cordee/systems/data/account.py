"""Which samples of its data sets a run was trained on: every one exactly once, or which were missed or repeated.

A position counts samples over all epochs: sample p of epoch e stands at e * size + p. What an attempt was given after the
checkpoint that the next one restored is rolled back with the weights and given again: it counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cordee.core.findings import Finding
from cordee.runs.state import RunState

ONCE = "once"


@dataclass(frozen=True)
class Stretch:
    """What of an attempt's samples is in the weights: positions from `begin` to before `end`.

    `given_until` is the position after the last batch that is known to have been given.
    """

    attempt: int
    ranks: int
    begin: int
    end: int
    given_until: int


@dataclass
class SetAccount:
    """The account of one data set.

    Attributes:
        size: samples of an epoch; None: not told.
        stretches: of the attempts whose samples are in the weights, without a gap where all is well.
        rolled_back: samples that were given, undone by a restart, and given again.
        missed, repeated: ranges of positions that no attempt, or two, were trained on.
        dropped: samples that `last="drop"` left out as it was asked to.
        doubts: why it cannot be said, as sentences.
    """

    name: str
    size: int | None = None
    stretches: list[Stretch] = field(default_factory=list)
    rolled_back: int = 0
    missed: list[tuple[int, int]] = field(default_factory=list)
    repeated: list[tuple[int, int]] = field(default_factory=list)
    dropped: int = 0
    doubts: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> Literal["once", "wrong", "unknown"]:
        """Whether every sample was trained on exactly once in each epoch."""
        if self.missed or self.repeated:
            return "wrong"
        return "unknown" if self.doubts or not self.stretches else "once"

    @property
    def samples(self) -> int:
        """How many samples the training has behind it."""
        return self.stretches[-1].end - self.stretches[0].begin if self.stretches else 0

    @property
    def epochs(self) -> float | None:
        """The same in epochs."""
        return self.samples / self.size if self.size else None

    def text(self) -> str:
        """Return the account as a sentence's part, without the set's name."""
        if not self.stretches:
            return "; ".join(self.doubts) or "nothing was given"
        epochs = "" if self.epochs is None else f", {_epochs(self.epochs)}"
        parts = [f"{self.samples:,} samples{epochs}, {self._how_often()}"]
        ranks = list(map(str, {stretch.attempt: stretch.ranks for stretch in self.stretches}.values()))
        count = len(ranks)
        attempts, noun = "attempt" if count == 1 else "attempts", "rank" if ranks[-1] == "1" else "ranks"
        parts.append(f"{count} {attempts} with {_listed(ranks)} {noun}")
        if self.rolled_back:
            parts.append(f"{self.rolled_back:,} were undone by restarts and given again")
        if self.dropped:
            parts.append(f"{self.dropped:,} left out by last='drop'")
        return "; ".join(parts)

    def document(self) -> dict[str, Any]:
        """Return the account for `--json`; ranges are positions [from, to)."""
        return {
            "set": self.name,
            "verdict": self.verdict,
            "text": self.text(),
            "size": self.size,
            "samples": self.samples,
            "epochs": self.epochs,
            "attempts": [vars(stretch) for stretch in self.stretches],
            "rolled_back": self.rolled_back,
            "missed": [list(part) for part in self.missed],
            "repeated": [list(part) for part in self.repeated],
            "dropped": self.dropped,
            "doubts": self.doubts,
        }

    def _how_often(self) -> str:
        if self.verdict == ONCE:
            return "each exactly once" + (" in its epoch" if (self.epochs or 0) > 1 else "")
        said = [f"{_number(self.missed)} missed"] if self.missed else []
        said += [f"{_number(self.repeated)} trained on twice"] if self.repeated else []
        return ", ".join([*said, *(f"unknown whether exactly once: {text}" for text in self.doubts)])


def account_of(state: RunState) -> list[SetAccount]:
    """Return the account of each data set that a run's journal tells of, in the order in which they were first read."""
    started = {attempt["attempt"]: attempt for attempt in state.attempts}
    reads: dict[str, list[dict[str, Any]]] = {}
    for read in sorted(state.data_reads, key=lambda read: (read["attempt"], read["turn"])):
        reads.setdefault(read["set"], []).append(read)
    return [_account(name, of_set, started) for name, of_set in reads.items()]


def account_findings(state: RunState) -> list[Finding]:
    """Return an error for each data set of which samples were missed, or trained on twice."""
    return [
        Finding(
            f"data set {account.name}: {account.text()}",
            "error",
            "samples-not-once",
            given={"missed": account.missed, "repeated": account.repeated},
            next="save the position with the checkpoint, cordee.checkpointer(..., data=...), and load both from the same one",
        )
        for account in account_of(state)
        if account.verdict == "wrong"
    ]


def _account(name: str, reads: list[dict[str, Any]], started: dict[int, dict[str, Any]]) -> SetAccount:
    account = SetAccount(name)
    saved: dict[int | None, int] = {}
    positions: set[int] = set()
    for read in reads:
        attempt = read["attempt"]
        account.size = read["size"] or account.size
        account.dropped += read["dropped"] or 0
        about = started.get(attempt, {})
        stretch = _stretch(account, attempt, read, about)
        if stretch is None:
            continue
        if account.stretches:
            origin = account.stretches[0].begin
            _join(account, stretch, _restored(stretch.begin, about, origin, saved, positions))
        account.stretches.append(stretch)
        _check_counts(account, stretch, read)
        saved.update((save["step"], position) for position, save in read["saves"].items())
        positions.update(read["saves"])
    account.stretches = [part for part in account.stretches if part.end > part.begin] or account.stretches[-1:]
    return account


def _stretch(account: SetAccount, attempt: int, read: dict[str, Any], started: dict[str, Any]) -> Stretch | None:
    begins = read["begin"] or ([read["position"]] if read["position"] is not None else [])
    if len(begins) > 1:
        account.doubts.append(f"ranks of attempt {attempt} began at different positions: {_listed(map(str, begins))}")
    if not begins:
        return None
    until = max([begins[0], read["position"] or 0, *read["saves"]])
    return Stretch(attempt, started.get("world_size") or read["readers"], begins[0], until, until)


def _restored(
    begin: int, started: dict[str, Any], origin: int, saved: dict[int | None, int], positions: set[int]
) -> int | None:
    """Return the position up to which the weights that an attempt began with were trained, None: not known."""
    if begin in positions:
        return begin  # weights and position are loaded from one checkpoint
    if started.get("checkpoint") is None:
        return origin
    return saved.get(started.get("resume_step"))


def _join(account: SetAccount, stretch: Stretch, restored: int | None) -> None:
    """Undo what the restored checkpoint does not have, and compare where the next attempt begins."""
    if restored is None:
        doubt = (
            "the position is not known of a checkpoint that was restored: cordee.checkpointer(..., data=...) keeps it"
        )
        if doubt not in account.doubts:
            account.doubts.append(doubt)
        return
    kept = []
    for before in account.stretches:
        end = min(before.end, restored)
        account.rolled_back += before.end - max(end, before.begin)
        if end > before.begin:
            kept.append(replace(before, end=end))
    reached = max((before.end for before in kept), default=account.stretches[0].begin)
    account.stretches = kept
    if stretch.begin > reached:
        account.missed.append((reached, stretch.begin))
    elif stretch.begin < restored:
        account.repeated.append((stretch.begin, restored))


def _check_counts(account: SetAccount, stretch: Stretch, read: dict[str, Any]) -> None:
    """Compare what the ranks were given, counted by themselves, with the positions that they say they passed.

    Only where all ranks said so: the last words of those that are killed are not always heard.
    """
    counts = [(save["position"], save["given"]) for save in read["saves"].values() if save["readers"] == stretch.ranks]
    for position, given in counts:
        passed = position - stretch.begin
        # Ranks that share a model's layers or tensors are given the same samples.
        if given is not None and passed and not read["dropped"] and (given < passed or given % passed):
            account.doubts.append(
                f"attempt {stretch.attempt} counted {given:,} samples from {stretch.begin:,} to {position:,}"
            )
            return


def _number(parts: list[tuple[int, int]]) -> str:
    ranges = _listed(f"{begin:,} to {end - 1:,}" for begin, end in parts[:4])
    return f"{sum(end - begin for begin, end in parts):,} (positions {ranges}{' and more' if len(parts) > 4 else ''})"


def _epochs(epochs: float) -> str:
    shown = f"{epochs:.2f}".rstrip("0").rstrip(".") if epochs >= 0.01 else f"{epochs:.1g}"
    return f"{shown} {'epoch' if epochs == 1 else 'epochs'}"


def _listed(words: Iterable[str]) -> str:
    words = list(words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
