"""Aggregates of the user: what each way of keeping state costs, and what is said when one fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from user_kit import answer

import penstock
from penstock.errors import PenstockError
from penstock.expressions.calls.user_functions import REGISTERED
from penstock.session import Session
from penstock.testing.samples import Total

ROWS = [(t, t) for t in range(1, 61)]


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


class Counting(Total):
    """TOTAL that counts the values it is given."""

    given = 0

    def update(self, state: list[int], numbers: pa.Array) -> list[int]:
        type(self).given += len(numbers)
        return super().update(state, numbers)

    def expire(self, state: list[int], numbers: pa.Array) -> list[int]:
        type(self).given += len(numbers)
        return super().expire(state, numbers)


class OnlyMerge:
    """The same without expire."""

    given = 0

    def init(self) -> int:
        return 0

    def update(self, state: int, numbers: pa.Array) -> int:
        type(self).given += len(numbers)
        return state + sum(numbers.to_pylist())

    def merge(self, state: int, other: int) -> int:
        return state + other

    def final(self, state: int) -> int:
        return state


class Neither(OnlyMerge):
    merge = None  # type: ignore[assignment]


def given_over(kind: Any, window: str) -> int:
    kind.given = 0
    penstock.aggregate(returns="BIGINT", name="agg")(kind)
    rows = answer(f"SELECT agg(a) AS x, SUM(a) AS s FROM S {window}", ROWS, batch_rows=7)
    assert rows
    assert all((row[-1] or 0) == row[-2] for row in rows)  # a SUM over nothing is NULL
    return int(kind.given)


@pytest.mark.parametrize(
    ("kind", "window", "given"),
    [
        (Counting, "[RANGE 10 SECOND]", 60 + 50),  # each value comes, and goes
        (Counting, "", 60),
        (OnlyMerge, "[RANGE 10 SECOND]", 60),
        (OnlyMerge, "[RANGE 20 SECOND SLIDE 5 SECOND]", 60),
        (Neither, "[RANGE 10 SECOND]", sum(min(t, 10) for t, _ in ROWS)),  # all live values at every change
        (Neither, "", 60),  # nothing ever goes
    ],
)
def test_what_user_code_is_given(kind: Any, window: str, given: int) -> None:
    assert given_over(kind, window) == given


def test_a_session_has_aggregates_of_its_own() -> None:
    session = Session()
    session.aggregate(returns="BIGINT", parameters=["BIGINT"], name="mine")(Total)
    assert session.execute("SHOW AGGREGATES").texts == ("AGGREGATE mine (BIGINT) RETURNS BIGINT",)


class Picky(OnlyMerge):
    def update(self, state: int, numbers: pa.Array) -> int:
        if 7 in numbers.to_pylist():
            raise KeyError("seven")
        return state


def failure(kind: Any, **options: Any) -> str:
    penstock.aggregate(returns="BIGINT", name="agg")(kind)
    with pytest.raises(PenstockError) as caught:
        answer("CREATE QUERY totals AS SELECT agg(a) FROM S", ROWS[:9], **options)
    assert caught.value.code == "P0621"
    return caught.value.message


def test_the_rows_it_raises_on_are_shown() -> None:
    message = failure(Picky)
    assert message.startswith("query totals: the user-defined aggregate agg.update failed: KeyError: 'seven'\n")
    assert "it fails on:\n    (7)\n" in message
    assert "raise KeyError" in message


class Wordy(OnlyMerge):
    def final(self, state: int) -> Any:
        return "many"


def test_a_value_of_a_wrong_type() -> None:
    assert "agg.final failed: it returned a list, which is not BIGINT" in failure(Wordy)


class Locked(OnlyMerge):
    def init(self) -> Any:
        return threading.Lock()

    def update(self, state: Any, numbers: pa.Array) -> Any:
        return state

    def final(self, state: Any) -> int:
        return 0


def test_a_state_that_cannot_be_kept() -> None:
    message = failure(Locked, reload=True)
    assert "the state of agg cannot be kept: TypeError: cannot keep a _thread.lock" in message


def test_a_class_that_is_none() -> None:
    class Lacking:
        def init(self) -> int:
            return 0

    with pytest.raises(PenstockError, match="the aggregate Lacking lacks update, final"):
        penstock.aggregate(returns="BIGINT")(Lacking)
