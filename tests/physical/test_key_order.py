"""Keys in the order of values: of lists of values in any directions, as ORDER BY has them."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.expressions.nodes import KeyDirection
from penstock.physical.kernels.key_order import sort_keys
from penstock.testing.scalars.values import Place

#: By type: values at its limits, and such as have a beginning in common.
VALUES: dict[pa.DataType, list[object]] = {
    pa.int64(): [-(2**63), 2**63 - 1, 0, -1, 1, None],
    pa.int32(): [-(2**31), 2**31 - 1, 7, None],
    pa.bool_(): [True, False, None],
    pa.float64(): [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -1.5, None],
    pa.string(): ["", "a", "a\0", "a\0b", "ab", "aaaaaaaa", "aaaaaaaab", "aaaaaaaa\0", "é", "\U0001f600", None],
    pa.binary(): [b"", b"\0", b"\0\0", b"\0\1", b"\xff", b"\xff\xff", None],
    pa.decimal128(38, 2): [Decimal("-1e35"), Decimal("1e35"), Decimal(2**64), Decimal("-0.01"), Decimal(0), None],
    pa.date32(): [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
}


@pytest.mark.parametrize("seed", range(6))
def test_keys_of_lists_are_in_the_order_of_the_lists(seed: int) -> None:
    draw = random.Random(seed)
    for width in (1, 2, 2, 3, 4):
        kinds = draw.choices(list(VALUES), k=width)
        written = [KeyDirection(draw.random() < 0.5, draw.random() < 0.5) for _ in range(draw.randint(0, width))]
        rows = [[draw.choice(VALUES[kind]) for kind in kinds] for _ in range(60)]
        parts = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
        found = sort_keys(pa.StructArray.from_arrays(parts, [f"f{i}" for i in range(width)]).slice(10), written)
        directions = written + [KeyDirection()] * (width - len(written))
        places = [[Place(value, key) for value, key in zip(row, directions, strict=True)] for row in rows[10:]]
        spans = zip(found.starts.tolist(), found.lengths.tolist(), strict=True)
        texts = [bytes(found.data[start : start + length]) for start, length in spans]
        keys = list(zip(found.keys.tolist(), texts, strict=True))
        for one, one_key in zip(places, keys, strict=True):
            for other, other_key in zip(places, keys, strict=True):
                assert (one < other) == (one_key < other_key), (kinds, written)
                assert (one == other) == (one_key == other_key), (kinds, written)
