"""Lists of parts: few parts, rows in their order, and each row copied a few times."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.runtime.live.answers import KeptAnswers
from penstock.runtime.live.parts import append_part


@pytest.mark.parametrize("sizes", [(1,), (1, 2, 3), (1, 1000), (200_000,)])
def test_parts_stay_few_and_rows_in_order(sizes: tuple[int, ...]) -> None:
    draw, parts, expected, copied = random.Random(1), list[list[int]](), list[int](), 0

    def joined(several: Sequence[list[int]]) -> list[int]:
        nonlocal copied
        copied += sum(map(len, several))
        return [value for part in several for value in part]

    for number in range(30 if max(sizes) > 10_000 else 3000):
        size = draw.choice(sizes)
        append_part(parts, [number] * size, joined)
        expected += [number] * size
    assert joined(parts) == expected
    assert len(parts) <= max(8 * 6, len(expected) // 2**15)
    assert copied <= 10 * len(expected)


def test_answers_are_read_by_the_number_of_rows_read() -> None:
    draw, kept, expected = random.Random(2), KeptAnswers(), list[int]()
    for number in range(100):
        size = 1 + draw.randrange(5)
        kept = kept.followed_by(pa.table({"v": [number] * size}))
        expected += [number] * size
        before = kept
    read: list[int] = []
    while len(read) < 250:
        read += kept.since(len(read), 250).column("v").to_pylist()
    assert read == expected[:250]
    assert kept.rows == len(expected) == before.rows
    kept = kept.followed_by(pa.table({"v": [7]}))
    assert (before.rows, sum(part.num_rows for part in before.parts)) == (len(expected),) * 2
    with pytest.raises(IndexError):
        kept.since(kept.rows, kept.rows + 1)
