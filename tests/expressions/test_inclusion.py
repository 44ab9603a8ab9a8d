"""Inclusion records as functions make them, and what is no record."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.expressions.calls.functions import build_call
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.nodes import Column, Literal
from penstock.expressions.sampling.inclusion import independent, unpacked


def columns(*arrays: pa.Array) -> list[Column]:
    return [Column(array.type, i) for i, array in enumerate(arrays)]


def test_a_pair_of_records() -> None:
    left, right = independent(0.5, np.array([1, 2])), independent(0.25, np.array([1, 9]))
    joined = evaluate(build_call("INCLUSION_OF_PAIR", columns(left, right)), [left, right], 2)
    assert unpacked(joined).pi.tolist() == [0.25, 0.125]


@pytest.mark.filterwarnings("error")
def test_what_is_no_record_gives_null() -> None:
    left = pa.array([None, b"", b"x" * 32, b"x" * 31], pa.binary())
    joined = evaluate(build_call("INCLUSION_OF_PAIR", columns(left, left)), [left, left], 4)
    assert [value is None for value in joined.to_pylist()] == [True, True, False, True]


def test_a_record_of_its_parts() -> None:
    pi, number = pa.array([0.5, None, 1.0]), pa.array([3, 4, None], pa.int64())
    record = build_call("INCLUSION_RECORD", columns(pi, number, number, number))
    made = evaluate(record, [pi, number, number, number], 3)
    assert [value is None for value in made.to_pylist()] == [False, True, True]
    assert unpacked(made.slice(0, 1)).sides.tolist() == [(0.5, 3, 3, 3)]


def test_a_draw_depends_on_the_values_alone() -> None:
    values = pa.array([7, 8, 7], pa.int64())
    drawn = build_call("SAMPLE_DRAW", [Literal(pa.int64(), 5), Column(pa.int64(), 0)])
    whole, piece = evaluate(drawn, [values], 3), evaluate(drawn, [values.slice(1, 2)], 2)
    assert whole[0] == whole[2] != whole[1] and whole.slice(1, 2).equals(piece)
    with pytest.raises(PenstockError) as caught:
        build_call("SAMPLE_DRAW", [Column(pa.int64(), 0), Column(pa.int64(), 0)])
    assert caught.value.code == "P0203"


def test_a_priority_is_the_weight_over_the_draw() -> None:
    weights, drawn = pa.array([1.0, None]), pa.array([2**62, 5], pa.int64())
    made = evaluate(build_call("SAMPLE_PRIORITY", columns(weights, drawn)), [weights, drawn], 2)
    assert made.to_pylist() == [pytest.approx(4.0), None]
