"""What a run decides by measuring: its form in the offset, and the controllers."""

from __future__ import annotations

import json

import pytest

from penstock.physical.decisions import WHOLE, Decided, Decisions, divided, next_keep_below
from penstock.runtime.spark.checkpoint.offset import Offset


def test_decisions_stand_in_the_offset_and_come_back() -> None:
    decided = Decisions().with_all(Decided.KEEP_BELOW, {"q": WHOLE - 1, "odd \u2603 name": 3})
    decided = decided.with_all(Decided.STATE_BUDGET, {"q": 2**40}).with_all(Decided.KEEP_BELOW, {"q": 5})
    offset = Offset(3, {"s": 1}, {"s": None}, decided=decided)
    again = Offset.from_json(json.loads(json.dumps(offset.as_json())))
    assert again == offset
    assert again.decided.of(Decided.KEEP_BELOW, "q") == 5
    assert again.decided.share(Decided.KEEP_BELOW, "other") == 1.0
    assert again.planned().decided == decided


def test_an_offset_without_decisions_says_nothing_of_them() -> None:
    assert "decided" not in Offset(1, {}, {}).as_json()
    assert not Offset.from_json(Offset(1, {}, {}).as_json()).decided


def test_decisions_of_queries_that_are_gone_go() -> None:
    decided = Decisions().with_all(Decided.KEEP_BELOW, {"q": 1, "r": 2}).with_all(Decided.GRANT, {"r": 7})
    assert decided.only({"q"}) == Decisions({Decided.KEEP_BELOW: {"q": 1}})


def test_the_threshold_only_falls_and_settles() -> None:
    threshold = None
    cost = 4.0  # cores that all values use
    for _ in range(40):
        used = cost * (1.0 if threshold is None else threshold / WHOLE)
        fallen = next_keep_below(threshold, used, 1.0)
        assert threshold is None or fallen <= threshold
        threshold = fallen
    assert threshold is not None and threshold / WHOLE == pytest.approx(0.25, rel=0.01)
    assert next_keep_below(threshold, 0.1, 1.0) == threshold


@pytest.mark.parametrize(
    ("limit", "used", "weights", "parts"),
    [
        (100, {"a": 200, "b": 200}, {"a": 1, "b": 1}, {"a": 50, "b": 50}),
        (100, {"a": 10, "b": 200}, {"a": 9, "b": 1}, {"a": 10, "b": 90}),
        (100, {"a": 40, "b": 50}, {}, {"a": 40, "b": 50}),
        (90, {"a": 100, "b": 100}, {"a": 2, "b": 1}, {"a": 60, "b": 30}),
        (0, {"a": 5}, {"a": 1}, {"a": 0}),
    ],
)
def test_a_limit_is_divided_by_weight(
    limit: int, used: dict[str, int], weights: dict[str, float], parts: dict[str, int]
) -> None:
    assert divided(limit, used, weights) == parts
