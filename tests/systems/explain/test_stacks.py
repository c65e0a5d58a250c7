"""Stacks of many ranks as one tree."""

from __future__ import annotations

from cordee.systems.explain.hang.stacks import (
    StackFrame,
    main_stack,
    merged,
    own_line,
    read_stacks,
    shown_tree,
    tree_lines,
)

from .made_hang import WAITS

SPY = """\
Process 4242: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 4242 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    step (/home/me/train.py:40)
Thread 4250 (active): "worker"
    run (threading.py:982)
"""


def test_the_thread_that_runs_the_script_is_found_in_both_forms():
    assert own_line(main_stack(read_stacks(WAITS))) == "/home/me/train.py:40 (step)"
    assert main_stack(read_stacks(SPY))[1] == StackFrame("/home/me/train.py", 40, "step")


def test_text_that_is_none_has_no_threads():
    assert read_stacks("") == read_stacks('  File "x", line 3 in y\nnonsense\n') == []
    assert main_stack([]) == ()


def test_equal_stacks_are_told_once_with_their_ranks():
    waits = main_stack(read_stacks(WAITS))
    odd = (StackFrame("/home/me/train.py", 55, "evaluate"), waits[-1])
    tree = merged({**dict.fromkeys(range(8), waits), 3: odd})
    assert list(tree_lines(tree)) == [
        "/home/me/train.py:90 (<module>)  8 ranks: 0-7",
        "  /home/me/train.py:40 (step)  7 ranks: 0-2, 4-7",
        "    /x/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:3252 (all_reduce)  7 ranks: 0-2, 4-7",
        "  /home/me/train.py:55 (evaluate)  1 rank: 3",
    ]
    (script,) = tree.document()["below"]
    assert script["ranks"] == list(range(8))
    assert [below["line"] for below in script["below"]] == [40, 55]


def test_calls_of_libraries_are_counted_unless_all_are_wanted():
    library = StackFrame("/x/site-packages/torch/nn/module.py", 1, "forward")
    frames = (
        StackFrame("/home/me/model.py", 7, "attend"),
        library,
        library._replace(line=2),
        StackFrame("/home/me/train.py", 1, "<module>"),
    )
    tree = merged({0: frames})
    assert list(tree_lines(tree))[1] == "  /home/me/model.py:7 (attend)  1 rank: 0   (through 2 calls of libraries)"
    assert len(list(tree_lines(tree, every_frame=True))) == 4


def test_a_tree_for_a_page_keeps_the_calls_of_most_ranks_and_counts_the_others():
    main = StackFrame("/home/me/train.py", 90, "<module>")
    stacks = {
        rank: (StackFrame("/home/me/train.py", rank if rank < 50 else 40, "step"), main) for rank in range(10_000)
    }
    tree = shown_tree(merged(stacks), 3)
    (root,) = tree["below"]
    assert (root["count"], root["ranks"], root["here"], len(root["below"]), root["more"]) == (
        10_000,
        "0-9999",
        0,
        2,
        48,
    )
    assert (root["below"][0]["line"], root["below"][0]["count"], root["below"][0]["library"]) == (40, 9951, False)
    assert shown_tree(merged({}), 3)["below"] == []
