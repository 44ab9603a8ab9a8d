"""Records that compiled loops read by name."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.arrays import joined, longer, record_of
from penstock.compilation import loop

PLACE = record_of("x", ("pair", 2), floats=("y",))


@loop
def _filled(places: np.ndarray) -> None:
    for i in range(places.shape[0]):
        places[i].x, places[i].y = i, i / 2
        places[i].pair[1] = -i


@pytest.mark.parametrize("fill", [_filled, _filled.py_func])
def test_a_loop_writes_what_numpy_reads_with_its_compiler_and_without(fill: object) -> None:
    places = np.zeros(3, PLACE)
    fill(places)  # type: ignore[operator]
    assert (places["x"].tolist(), places["y"].tolist()) == ([0, 1, 2], [0.0, 0.5, 1.0])
    assert places["pair"].tolist() == [[0, 0], [0, -1], [0, -2]]


@pytest.mark.parametrize("name", ["size", "sort", "base", "item"])
def test_a_field_has_no_name_that_a_scalar_of_numpy_has(name: str) -> None:
    with pytest.raises(AssertionError):
        record_of("x", name)
    with pytest.raises(AssertionError):
        record_of("x", floats=(name,))


def test_records_are_joined_and_made_longer() -> None:
    places = np.zeros(3, PLACE)
    _filled(places)
    assert joined([places, places[:0], places[1:]]).tobytes() == places.tobytes() + places[1:].tobytes()
    made = longer(places[1:], 5)
    assert len(made) == 5 and made[:2].tobytes() == places[1:].tobytes() and made.dtype == PLACE
