"""Punctuations that a stream keeps find the rows that fulfil one, as the definition has it, whatever came first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.properties.punctuations import Condition, PlainValue, Punctuation, ValueBounds
from penstock.physical.synopses.promises.punctuations import Punctuations
from penstock.testing.promises.punctuations import fulfils, plain_rows

_VALUES: dict[pa.DataType, Sequence[PlainValue]] = {
    pa.int32(): range(6),
    pa.float64(): (-0.0, 0.0, 1.5, float("inf"), -2.0),
    pa.string(): ("", "a", "b", "é", "\U0001f600"),
    pa.timestamp("us", "UTC"): (0, 5, 2**59, -7),
    pa.decimal128(10, 2): tuple(map(Decimal, ("0.00", "1.25", "-3.10"))),
    pa.bool_(): (False, True),
    pa.date32(): (0, 1, -400),
}
_TYPES = list(_VALUES)


def condition(draw: random.Random, type_: pa.DataType) -> Condition:
    values = _VALUES[type_]
    kind = draw.randrange(4)
    if kind == 0:
        return tuple(dict.fromkeys(draw.choice(values) for _ in range(draw.randint(1, 3))))
    if kind == 1:
        return (None,) if draw.random() < 0.4 else (draw.choice(values),)
    low, high = (draw.choice(values) if draw.random() < 0.7 else None for _ in range(2))
    if low is None and high is None:
        low = draw.choice(values)
    return ValueBounds(low, high, low is not None and draw.random() < 0.4, high is not None and draw.random() < 0.4)


def punctuation(draw: random.Random, types: Sequence[pa.DataType], most: int = 3) -> Punctuation:
    chosen = sorted(draw.sample(range(len(types)), draw.randint(1, min(most, len(types)))))
    return Punctuation(tuple((c, condition(draw, types[c])) for c in chosen))


def table(draw: random.Random, types: Sequence[pa.DataType], rows: int) -> pa.Table:
    columns = []
    for type_ in types:
        own = [*_VALUES[type_], None, *([float("nan")] if pa.types.is_floating(type_) else [])]
        plain = [draw.choice(own) for _ in range(rows)]
        if pa.types.is_timestamp(type_):
            columns.append(pa.array(plain, pa.int64()).cast(type_))
        elif pa.types.is_date32(type_):
            columns.append(pa.array(plain, pa.int32()).cast(type_))
        else:
            columns.append(pa.array(plain, type_))
    return pa.table(columns, names=[f"c{i}" for i in range(len(types))])


@pytest.mark.parametrize("seed", range(60))
def test_rows_that_fulfil_one_are_those_of_the_definition(seed: int) -> None:
    draw = random.Random(seed)
    types = draw.sample(_TYPES, draw.randint(1, 4))
    most = draw.choice((1, 3))
    kept, said = Punctuations(), list[Punctuation]()
    for _ in range(draw.randint(0, 8)):
        fresh = [punctuation(draw, types, most) for _ in range(draw.randint(1, 6))]
        kept = kept.added(fresh)
        said += fresh
    rows = table(draw, types, draw.randint(0, 40))
    placed = sorted(draw.randint(0, rows.num_rows) for _ in range(draw.randint(0, 12)))
    news = [(place, punctuation(draw, types, most)) for place in placed]
    columns = {c: rows.column(c).combine_chunks() for c in range(len(types))}
    found = kept.fulfilled(columns, rows.num_rows, news)
    expected = [
        any(fulfils(row, one) for one in said) or any(fulfils(row, one) for place, one in news if place <= number)
        for number, row in enumerate(plain_rows(rows))
    ]
    assert found.tolist() == expected
    assert len(kept) == len(list(kept)) <= sum(one.size for one in said)
    again = Punctuations().added([Punctuation.from_text(one.as_text()) for one in kept])
    assert np.array_equal(again.fulfilled(columns, rows.num_rows, news), found)
    assert len(again) <= len(kept)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_kept_already_is_not_kept_again(seed: int) -> None:
    draw = random.Random(seed)
    said = [punctuation(draw, _TYPES[:3]) for _ in range(20)]
    kept = Punctuations().added(said)
    assert len(kept.added(draw.sample(said, 20))) == len(kept)
    assert kept.added(said) is kept


def test_of_one_column_the_greatest_upper_bound_stays() -> None:
    kept = Punctuations()
    for limit in (5, 3, 7, 7, 6):
        kept = kept.added([Punctuation(((0, ValueBounds(high=limit)),))])
    assert list(kept) == [Punctuation(((0, ValueBounds(high=7)),))]
    kept = kept.added([Punctuation(((0, (2,)),)), Punctuation(((0, ValueBounds(low=1, high=7)), (1, (4,))))])
    assert len(kept) == 1
    assert len(kept.added([Punctuation(((0, ValueBounds(high=8, open_high=True)),))])) == 1


def test_a_bound_leaves_no_value_that_it_contains() -> None:
    kept = Punctuations()
    for value in range(1000):
        kept = kept.added([Punctuation(((0, (value,)),)), Punctuation(((0, (value,)), (1, (5,))))])
        if value % 50 == 49:
            kept = kept.added([Punctuation(((0, ValueBounds(None, value, False, False)),))])
        # What stands in a level twice as large is looked at when that is merged.
        assert len(kept) <= 4 * 2 * 50
    column = pa.array([0, 49, 999, 1000])
    assert kept.fulfilled({0: column, 1: pa.array([7, 7, 7, 7])}, 4, ()).tolist() == [True, True, True, False]


def test_as_many_are_kept_as_the_limit_says() -> None:
    kept = Punctuations(2).added([Punctuation(((0, (1, 2)),))])
    assert len(kept) == 2
    assert kept.has_room(Punctuation(((0, (2,)),)))
    assert kept.has_room(Punctuation(((0, (5,)), (1, ()))))
    assert not kept.has_room(Punctuation(((0, (3,)),)))


def test_many_are_added_one_at_a_time_and_found() -> None:
    kept = Punctuations()
    for number in range(3_000):
        kept = kept.added([Punctuation(((0, (number,)),))])
    assert len(kept.levels) <= 12
    column = pa.array([*range(2_990, 3_010), None], pa.int64())
    assert kept.fulfilled({0: column}, 21, []).tolist() == [True] * 10 + [False] * 11
