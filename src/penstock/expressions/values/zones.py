"""Columns of times moved by the offsets of time zones, one zone or a column of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.values.datum import Datum, from_numbers, is_scalar, null_unless, numbers
from penstock.time_zones import Integers, Zone, known_zone, zone_of


def checked_zone(argument: Expression) -> None:
    """Check the zone in a constant. Raises PenstockError P0212 where it is unknown."""
    if isinstance(argument, Literal) and isinstance(argument.value, str):
        known_zone(argument.value)


def shifted(times: pa.Array, zones: Datum, shift: Callable[[Zone, Integers], Integers], type_: pa.DataType) -> pa.Array:
    """Return `times` moved by what `shift` returns of a zone, as `type_`; NULL where the zone is unknown or the result
    beyond 64 bits.

    Args:
        times: Microseconds as TIMESTAMP or TIMESTAMP_NTZ.
        zones: STRING, one name or a column; `shift` is called once for each distinct zone.
        shift: (zone, times in microseconds) -> microseconds to be added.
    """
    ticks = numbers(times)
    if is_scalar(zones):
        zone = zone_of(zones.as_py()) if zones.is_valid else None
        if zone is None:
            return pa.nulls(len(times), type_)
        moves, known = shift(zone, ticks), None
    else:
        moves, known = _by_zone(ticks, zones, shift)
    moved = ticks + moves
    result = from_numbers(moved, type_, times)
    if known is not None and not known.all():
        result = null_unless(known, result)
    fits = (moved < ticks) == (moves < 0)
    return result if fits.all() else null_unless(fits | (moves == 0), result)


def _by_zone(
    ticks: Integers, zones: pa.Array, shift: Callable[[Zone, Integers], Integers]
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return (the moves, whether the zone is known) of each row: rows are grouped by zone with one sort."""
    encoded = zones.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    names = encoded.dictionary.to_pylist()
    ends = np.searchsorted(codes[order], np.arange(-1, len(names)), "right")
    moves, known = np.zeros(len(ticks), np.int64), np.zeros(len(ticks), np.bool_)
    for code, name in enumerate(names):
        zone = zone_of(name)
        if zone is not None:
            rows = order[ends[code] : ends[code + 1]]
            moves[rows], known[rows] = shift(zone, ticks[rows]), True
    return moves, known
