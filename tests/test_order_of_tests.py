"""The order in which several processes share the tests: each test once, the longest at the beginning of each part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HERE, LONGEST, longest_first


@dataclass(frozen=True)
class Item:
    path: Path
    number: int


def test_files_with_the_longest_tests_are_there() -> None:
    assert all((HERE / name).is_file() for name in LONGEST)


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 60, 164])
def test_each_test_is_there_once_and_long_ones_begin(processes: int, count: int) -> None:
    files = [*LONGEST, *("spark/short.py" for _ in range(4 * len(LONGEST)))]
    items: list[Any] = [Item(HERE / files[number % len(files)], number) for number in range(count)]
    ordered: list[Any] = longest_first(items, processes)
    assert sorted(item.number for item in ordered) == list(range(count))
    if count > 100:
        for number in range(processes):
            first = ordered[number * count // processes]
            assert first.path.relative_to(HERE).as_posix() == LONGEST[number]
