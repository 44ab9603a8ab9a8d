"""Compiled loops: once for arrays that may be written to and arrays that may not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from penstock.physical.kernels.compiled import sort_first
from penstock.physical.kernels.compiling import compiled
from penstock.physical.operators.sets.distinct import _extend


def scaled(values, by, out, start=0):  # type: ignore[no-untyped-def]
    for i in range(start, values.shape[0]):
        out[i] = values[i] * by[i % by.shape[0]]
    return out.shape[0]


def test_arrays_that_are_read_need_one_compilation() -> None:
    """In whatever order they come first, slices with gaps and values of other types apart."""
    loop = compiled(reads="values by")(scaled)
    # Nothing that another run left on the disk.
    loop._cache.flush()
    for fixed in product((False, True), repeat=2):
        values, by, out = np.arange(4), np.array([2, 3]), np.zeros(4, np.int64)
        for array, is_fixed in zip((values, by), fixed, strict=True):
            array.flags.writeable = not is_fixed
        assert loop(values, by, out) == 4
        assert out.tolist() == [0, 3, 4, 9]
    assert len(loop.signatures) == 1
    assert loop(np.arange(8)[::2], np.array([2, 3]), out) == 4 and out.tolist() == [0, 6, 8, 18]
    assert loop(np.arange(4.0), np.array([2, 3]), out) == 4
    assert len(loop.signatures) == 3


def test_a_call_with_types_of_before_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each call with arrays that may be written to would look for its compilation: 70 us instead of 1."""
    loop, looked = compiled(reads="values by")(scaled), []
    compile_widest = loop.compile
    monkeypatch.setattr(loop, "compile", lambda signature: (looked.append(signature), compile_widest(signature))[1])
    for _ in range(3):
        for is_fixed in (False, True):
            values, out = np.arange(4), np.zeros(4, np.int64)
            values.flags.writeable = not is_fixed
            assert loop(values, np.array([2, 3]), out) == 4 and out.tolist() == [0, 3, 4, 9]
    assert len(looked) == 2


@pytest.mark.parametrize("is_first_fixed", [False, True])
def test_a_call_with_nothing_but_read_only_arrays_is_found_at_once(
    is_first_fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays of Arrow. Each such call took 70 us, and 17 ns more than the one before it, without end."""
    loop, looked = compiled(reads="values by")(scaled), []
    compile_widest = loop.compile
    monkeypatch.setattr(loop, "compile", lambda signature: (looked.append(signature), compile_widest(signature))[1])
    for i in range(6):
        values, by, out = np.arange(4), np.array([2, 3]), np.zeros(4, np.int64)
        values.flags.writeable = by.flags.writeable = (i % 2 == 0) != is_first_fixed
        assert loop(values, by, out) == 4 and out.tolist() == [0, 3, 4, 9]
    assert len(looked) == (2 if is_first_fixed else 1)


@compiled()
def _first_of(values, at):  # type: ignore[no-untyped-def]
    return values[at]


@compiled()
def _some(values, at):  # type: ignore[no-untyped-def]
    return _first_of(values, 0) + _first_of(values, 1) + _first_of(values, at)


def test_literals_of_other_loops_need_no_compilation() -> None:
    """A loop that passes 0, 1 and a variable needs one of the inner loop, not three."""
    for loop in (_first_of, _some):
        loop._cache.flush()
    assert _some(np.array([1, 20, 300]), 2) == 321
    assert len(_first_of.signatures) == 1


def test_arrays_that_are_written_to_must_be_so() -> None:
    loop, out = compiled(reads="values by")(scaled), np.zeros(4, np.int64)
    out.flags.writeable = False
    with pytest.raises(Exception, match="readonly array"):
        loop(np.arange(4), np.array([2, 3]), out)
    assert out.tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="not in tuple"):
        compiled(reads="no_parameter")(scaled)


def test_the_first_values_are_sorted_in_place() -> None:
    """Of any number, with equal ones and the limits of the type among them."""
    draw = np.random.default_rng(0)
    for size in (0, 1, 2, 3, 4, 5, 8, 31, 100, 1000):
        for values in (
            np.arange(size),
            np.arange(size)[::-1].copy(),
            draw.integers(-(2**63), 2**63 - 1, size),
            draw.integers(0, 3, size),
        ):
            for count in {size, size // 2}:
                sorted_values = values.copy()
                sort_first(sorted_values, count)
                assert sorted_values.tolist() == [*np.sort(values[:count]), *values[count:]]


def test_a_loop_over_rows_of_arrow_and_of_computed_columns() -> None:
    """The elements of a DISTINCT come in both ways, and which column comes how differs from batch to batch."""
    before = len(_extend.signatures)
    for fixed in product((False, True), repeat=4):
        columns = [np.array(c) for c in ([0, 0, 1], [1, 2, 4], [3, 5, 6], [0, 1, 2])]
        for array, is_fixed in zip(columns, fixed, strict=True):
            array.flags.writeable = not is_fixed
        state = np.zeros(2, np.int64), np.zeros(2, np.int64)
        out = [np.zeros(4, np.int64) for _ in range(3)]
        count = _extend(*columns, *state, *out)
        assert [a[:count].tolist() for a in out] == [[0, 1], [1, 4], [3, 6]]
    assert len(_extend.signatures) <= before + 1
