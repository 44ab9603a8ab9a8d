"""The least floor of many readers is that of a look at all of them."""

from __future__ import annotations

import random

import pytest

from penstock.physical.operators.base.reader_floors import ReaderFloors
from penstock.types import BEGIN, END


@pytest.mark.parametrize("seed", range(20))
def test_the_least_floor_is_that_of_all(seed: int) -> None:
    draw = random.Random(seed)
    floors: ReaderFloors[int] = ReaderFloors()
    naive: dict[int, int | None] = {}
    largest = draw.choice((3, 40))
    assert floors.least is None
    for number in range(3_000):
        reader = draw.randrange(largest)
        if draw.random() < 0.1:
            floors.remove(reader)
            naive.pop(reader, None)
        else:
            floor = draw.choice((None, BEGIN, END, number, number // 7, *range(number, number + 5)))
            floors.put(reader, floor)
            naive[reader] = floor
        known = [floor for floor in naive.values() if floor is not None]
        assert floors.least == (min(known) if naive and len(known) == len(naive) else None)
        assert floors.readers == naive.keys()
    # What nobody has any more is forgotten.
    for number in range(1_000):
        floors.put(0, END - number)
        assert len(floors._heap) <= 2 * largest + 17
