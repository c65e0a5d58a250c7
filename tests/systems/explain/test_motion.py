"""Whether a rank goes on, from what is seen of it second by second."""

from __future__ import annotations

from cordee.systems.explain.node.motion import RankMotion


def test_a_rank_that_makes_steps_does_not_stand_and_its_usual_time_is_the_median():
    motion = RankMotion(3, 100.0)
    for step, now in enumerate((101.0, 103.0, 105.0, 107.0, 140.0, 142.0)):
        motion.reached({"step": step + 1}, now)
    assert motion.stand(142.0) == (3, 0.0, 0.0, 2.0, True, "")
    assert motion.stand(150.0)[:3] == (3, 8.0, 8.0)


def test_a_rank_that_does_other_things_stands_and_is_not_idle():
    motion = RankMotion(0, 0.0)
    motion.reached({"step": 1}, 1.0)
    motion.was_active(50.0)
    assert motion.stand(60.0)[1:4] == (59.0, 10.0, None)


def test_a_rank_of_which_no_progress_is_known_stands_only_while_it_does_nothing():
    motion = RankMotion(0, 0.0)
    motion.reached({"step": 0, "group": 0}, 5.0)
    motion.was_active(90.0)
    assert motion.stand(100.0)[1:5] == (10.0, 10.0, None, False)


def test_any_kind_of_progress_counts_and_a_kind_that_is_not_told_stays():
    motion = RankMotion(0, 0.0)
    motion.reached({"optimizer": 4, "group a": 7}, 1.0)
    motion.reached({"optimizer": 4}, 20.0)  # the table of groups could not be read
    motion.reached({"optimizer": 4, "group a": 7}, 21.0)
    assert motion.stand(21.0).stands_s == 20.0
    motion.reached({"optimizer": 4, "group a": 8}, 22.0)
    assert motion.stand(22.0).stands_s == 0.0


def test_time_that_nobody_saw_does_not_count():
    motion = RankMotion(0, 0.0)
    motion.reached({"step": 1}, 1.0)
    motion.unseen(3600.0)
    assert motion.stand(3604.0)[1:3] == (3.0, 3.0)
