"""Where logged metrics come from, and what is wrong with endpoints, over the nodes of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import cordee
from cordee.runs.folder import RunFolder
from cordee.telemetry.node.blocklog import BESIDE_CHANNEL, BlockLogWriter, encode_events, encode_facts
from cordee.telemetry.store.logged import LoggedFacts, logged_facts, logged_findings
from cordee.telemetry.store.unsealed.tail import LiveEvents


@pytest.fixture
def written(tmp_path: Path):
    """Write records as a supervisor does, and return the folder."""
    folder = RunFolder.create(tmp_path, "a-20231114T221320Z-abcd")

    def write(*records: bytes) -> Path:
        writer = BlockLogWriter(folder.telemetry, 1)
        writer.append(b"".join(records))
        assert writer.close()
        return folder.root

    return write


def test_sources_of_a_name_are_joined_over_nodes(written) -> None:
    run = cordee.open_run(
        written(
            encode_facts(
                "a", "logged", 1.0, {"loss": {"sources": ["wandb"]}, "q": {"sources": ["prometheus"], "unit": "s"}}, {}
            ),
            encode_facts("b", "logged", 1.0, {"loss": {"sources": ["cordee.log"], "also": ["wandb"]}}, {}),
        )
    )
    assert logged_facts(run) == {
        "loss": LoggedFacts("cordee.log, wandb", ("wandb",)),
        "q": LoggedFacts("prometheus", (), "s"),
    }


def curve(root: Path) -> list[tuple[float, float]]:
    series = cordee.open_run(root).series("loss")
    return list(zip(series.steps.tolist(), series.mean.tolist(), strict=True))


def attempts(*given: tuple[int | None, float]) -> list[bytes]:
    """Return what two attempts log: the same steps, other values."""
    return [
        encode_events("a", 0, attempt, 0, [(8 * at, 10.0 * attempt + at, step, {"loss": value + attempt})])
        for attempt in (1, 2)
        for at, (step, value) in enumerate(given)
    ]


def test_steps_that_a_library_counts_in_each_process_continue_after_a_restart_and_others_are_repeated(written) -> None:
    facts = encode_facts("a", "logged", 1.0, {"loss": {"sources": ["wandb"], "counted": True}}, {})
    found = curve(written(facts, *attempts((0, 10.0), (1, 20.0))))
    assert found == [(0, 11.0), (1, 21.0), (2, 12.0), (3, 22.0)]


def test_a_step_that_the_script_names_again_after_a_restart_is_repeated(written) -> None:
    assert curve(written(*attempts((0, 10.0), (1, 20.0)))) == [(0, 12.0), (1, 22.0)]


def test_calls_without_a_step_are_all_there_after_a_restart(written) -> None:
    found = curve(written(*attempts((None, 10.0), (None, 20.0))))
    assert [value for _, value in found] == [11.0, 21.0, 12.0, 22.0]


def test_endpoints_that_fail_alike_are_one_finding_and_none_when_they_are_read_again(written) -> None:
    urls = {f"http://127.0.0.1:{port}/metrics": "nothing listens there" for port in (1, 2)}
    first = written(*(encode_facts(node, "logged", 1.0, {}, urls) for node in ("a", "b")))
    (found,) = logged_findings(cordee.open_run(first))
    assert found.text == "4 endpoints on 2 nodes cannot be read: nothing listens there"
    assert (found.severity, found.given, found.evidence["node"]) == ("warn", "http://127.0.0.1:1/metrics", "a")
    again = written(
        encode_facts("a", "logged", 2.0, {}, dict.fromkeys(urls, "")),
        encode_facts(
            "b", "logged", 2.0, {}, dict.fromkeys(urls, ""), ["endpoints are not read any more: their reader ended"]
        ),
    )
    (found,) = logged_findings(cordee.open_run(again))
    assert found.text == "endpoints are not read any more: their reader ended (1 node)"


def test_what_was_read_beside_a_channel_hides_nothing_that_the_rank_says(written) -> None:
    root = written(
        encode_events("a", 0, 1, 0, [(0, 1.0, 0, {"loss": 1.0})]),
        encode_events("a", 0, 1, 0, [(BESIDE_CHANNEL + 7, 1.5, None, {"queue": 3.0})]),
        encode_events("a", 0, 1, 0, [(64, 2.0, 1, {"loss": 0.5})]),
    )
    live = LiveEvents(RunFolder(root).telemetry).read()
    assert [(event.time, event.values) for event in live] == [
        (1.0, {"loss": 1.0}),
        (1.5, {"queue": 3.0}),
        (2.0, {"loss": 0.5}),
    ]
    assert [one.tolist() for one in (cordee.open_run(root).events("loss")["loss"]["value"],)] == [[1.0, 0.5]]
