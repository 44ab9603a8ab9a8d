"""Values in checkpoints: they come back as they were, and reading them runs nothing."""

from __future__ import annotations

import datetime
import math
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.physical.kernels.value_codec import pack, unpack

_ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.times()
)
_VALUES = st.recursive(
    _ATOMS,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(_ATOMS, inner)
        | st.sets(_ATOMS)
        | st.frozensets(_ATOMS)
        | st.lists(inner).map(deque)
        | st.dictionaries(st.text(), inner).map(OrderedDict)
    ),
    max_leaves=12,
)


@given(_VALUES)
def test_values_come_back(value: Any) -> None:
    again = unpack(pack(value))
    assert again == value and type(again) is type(value)


def test_values_of_libraries_come_back() -> None:
    for array in (np.arange(6).reshape(2, 3), np.array([1.5, math.nan]), np.array(["a", "bc"]), np.zeros((0, 2), "i1")):
        again = unpack(pack(array))
        assert again.dtype == array.dtype and again.shape == array.shape
        assert np.array_equal(again, array, equal_nan=array.dtype.kind == "f")
        again.flags.writeable = True
    records = np.array([(1, 2.5)], dtype=[("a", "<i4"), ("b", "<f8")])
    assert np.array_equal(unpack(pack(records)), records)
    assert type(unpack(pack(np.float32(1.5)))) is np.float32
    assert unpack(pack(pa.array([1, None], pa.int16()))).equals(pa.array([1, None], pa.int16()))
    assert unpack(pack(pa.scalar("x"))) == pa.scalar("x")
    assert unpack(pack(Counter("abca"))) == Counter("abca")
    counts = unpack(pack(defaultdict(list, {(1, 2): [Decimal("1.10"), Fraction(1, 3), 1j]})))
    assert counts == {(1, 2): [Decimal("1.10"), Fraction(1, 3), 1j]} and counts["new"] == []
    assert unpack(pack(deque([1, 2], 5))).maxlen == 5
    now = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
    assert unpack(pack([now, bytearray(b"x"), math.inf])) == [now, bytearray(b"x"), math.inf]


class Own:
    pass


@pytest.mark.parametrize("value", [Own(), lambda: 1, defaultdict(Own), np.array([Own()], object), [Own], iter("a")])
def test_what_has_no_place(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot keep"):
        pack(value)


@pytest.mark.parametrize(
    "data", [pickle.dumps([1]), b'["os.system","ls"]', b"[[]]", b'["ndarray","O",[1],""]', b"[1]", b""]
)
def test_what_was_never_packed_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack(data)
