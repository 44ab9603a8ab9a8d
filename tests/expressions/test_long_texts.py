"""Texts that functions make from texts: beyond a length they are NULL, and no plan holds a long one."""

from __future__ import annotations

import random
import time

import pyarrow as pa
import pytest

from penstock.expressions.calls.functions import build_call
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Call, Column, Expression, Literal
from penstock.expressions.values.datum import LONGEST_BYTES

STRING = pa.string()
MANY = "x" * 2**20


def text(value: str) -> Literal:
    return Literal(STRING, value)


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("CONCAT", [MANY] * 64),
        ("CONCAT_WS", [MANY] * 65),
        ("REPLACE", ["x", "y" * 100]),
        ("REGEXP_REPLACE", ["x", "y" * 100]),
        ("REGEXP_REPLACE", ["(x*)", "$1" * 100]),
    ],
)
@pytest.mark.parametrize("constant", [False, True])
def test_what_would_be_too_long_is_null(name: str, others: list[str], constant: bool) -> None:
    rows = ["a", MANY, None, "xx"] if not constant else [MANY]
    first: Expression = text(MANY) if constant else Column(STRING, 0)
    call = build_call(name, [first, *map(text, others)])
    began = time.process_time()
    found = evaluate(call, [pa.array(rows, STRING)], len(rows)).to_pylist()
    assert time.process_time() - began < 5
    if constant or name in ("CONCAT", "CONCAT_WS"):
        assert found == [None] * len(rows)
    else:
        assert found[1] is None and found[2] is None and found[0] is not None
        assert found[3] == evaluate(call, [pa.array(["xx"], STRING)], 1)[0].as_py() is not None


def test_concat_keeps_what_is_short_beside_what_is_long() -> None:
    call = build_call("CONCAT", [Column(STRING, 0), Column(STRING, 1)])
    half = "é" * (LONGEST_BYTES // 4)
    columns = [pa.array([half, half, "a"], STRING), pa.array([half, half + "b", "b"], STRING)]
    found = evaluate(call, columns, 3)
    assert [value.is_valid for value in found] == [True, False, True] and found[2].as_py() == "ab"


def test_a_plan_holds_no_long_text() -> None:
    assert isinstance(fold(build_call("REPEAT", [text("x"), Literal(pa.int32(), 4096)])), Literal)
    long = fold(build_call("REPEAT", [text("x"), Literal(pa.int32(), 2**20)]))
    assert isinstance(long, Call) and evaluate(long, [], 1).to_pylist() == [MANY]
    nested = build_call("REPLACE", [long, text("x"), build_call("REPEAT", [text("y"), Literal(pa.int32(), 2**20)])])
    began = time.process_time()
    assert evaluate(fold(nested), [], 1).to_pylist() == [None]
    assert time.process_time() - began < 2


def _distance(left: str, right: str) -> int:
    row = list(range(len(right) + 1))
    for number, letter in enumerate(left, 1):
        previous, row[0] = row[0], number
        for place, other in enumerate(right, 1):
            previous, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, previous + (letter != other))
    return row[-1]


def test_levenshtein_is_the_edit_distance() -> None:
    draw = random.Random(5)
    pairs = [
        ("".join(draw.choices("abé😀", k=draw.randrange(9))), "".join(draw.choices("abé😀", k=draw.randrange(9))))
        for _ in range(500)
    ]
    call = build_call("LEVENSHTEIN", [Column(STRING, 0), Column(STRING, 1)])
    columns = [pa.array([p[n] for p in pairs], STRING) for n in (0, 1)]
    assert evaluate(call, columns, len(pairs)).to_pylist() == [_distance(*p) for p in pairs]
    long = [pa.array(["ab" * 4_000], STRING), pa.array(["ba" * 4_000], STRING)]
    began = time.process_time()
    assert evaluate(call, long, 1).to_pylist() == [2]
    assert evaluate(call, [pa.array([MANY], STRING)] * 2, 1).to_pylist() == [None]
    assert time.process_time() - began < 5
