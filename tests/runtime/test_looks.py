"""How often a source is looked at: by what a look takes and by how long nothing has come."""

from __future__ import annotations

import math

import pytest

from penstock.runtime.spark.input.look_schedule import SELDOM, Gathering, Looks


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def looked(looks: Looks, clock: Clock, took: float, found: bool = False) -> float:
    """Seconds to the look after one that `took` so long."""
    with looks.look():
        clock.now += took
    if found:
        looks.found()
    return looks.wait


def test_the_first_look_is_due_at_once() -> None:
    assert Looks(0.02, Clock()).wait == 0.0


@pytest.mark.parametrize(
    ("silence", "took", "wait"),
    [(0.0, 0.0001, 0.02), (1.0, 0.0001, 0.02), (10.0, 0.0, 0.1), (60.0, 0.0, SELDOM), (1.0, 0.002, 0.04),
     (1.0, 0.1, SELDOM), (1.0, 3.0, 3.0)],
)  # fmt: skip
def test_quiet_and_large_places_are_looked_at_seldom(silence: float, took: float, wait: float) -> None:
    clock = Clock()
    looks = Looks(0.02, clock)
    clock.now += silence
    assert looked(looks, clock, took) == pytest.approx(wait, abs=1e-6)


def test_what_comes_makes_looks_frequent_again() -> None:
    clock = Clock()
    looks = Looks(0.02, clock)
    clock.now += 100
    assert looked(looks, clock, 0.0) == pytest.approx(SELDOM)
    assert looked(looks, clock, 0.0, found=True) == pytest.approx(0.02)


def test_a_server_is_asked_no_more_often_than_it_may_be() -> None:
    clock = Clock()
    assert looked(Looks(0.25, clock), clock, 0.001, found=True) == pytest.approx(SELDOM)


def test_where_nothing_more_will_come_nobody_looks() -> None:
    looks = Looks(0.02, Clock())
    looks.over()
    assert looks.wait == math.inf


def test_input_comes_often_where_it_came_of_late_and_a_look_is_cheap() -> None:
    clock = Clock()
    looks, server = Looks(0.02, clock), Looks(SELDOM, clock)
    looked(looks, clock, 0.0001, found=True)
    looked(server, clock, 0.0001, found=True)
    assert looks.frequent and not server.frequent
    looked(looks, clock, 0.01, found=True)
    assert not looks.frequent
    looked(looks, clock, 0.0001, found=True)
    clock.now += 3
    assert not looks.frequent


def test_a_round_is_held_back_for_a_part_of_the_last_one() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    assert gathering.wait == math.inf
    assert gathering.holds(True, 0.1)
    assert gathering.wait == pytest.approx(0.01)
    clock.now += 0.009
    assert gathering.holds(True, 0.1)
    clock.now += 0.002
    assert not gathering.holds(True, 0.1)
    assert gathering.wait == math.inf


def test_a_round_that_is_complete_is_not_held_back() -> None:
    clock = Clock()
    gathering = Gathering(clock)
    assert not gathering.holds(False, 0.1)
    assert gathering.holds(True, 60.0)
    assert gathering.wait == pytest.approx(0.02)
    assert not gathering.holds(False, 60.0)
    # Nothing is known of the time that a first round takes.
    assert not gathering.holds(True, None)
