"""What random cases are made of: flavours, one property test each, and the values that cells take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Flavour:
    """How often a case does what, in percent. One property test per flavour."""

    name: str
    join: int = 30
    group: int = 30
    nested: int = 20
    union: int = 10
    distinct: int = 20
    r2s: int = 30
    updates: int = 0
    keyed: int = 0
    static: int = 20
    disorder: int = 20
    calendar: int = 10
    kept: int = 0
    """WSTREAM and RESTORE"""
    multi: int = 0
    rows: int = 0
    internal: int = 0
    sample: int = 0
    window_where: int = 0
    ordered: int = 0
    user: int = 0
    outer: int = 0
    subquery: int = 0


FLAVOURS = (
    Flavour("windows", join=0, group=20, nested=0, static=0),
    Flavour("joins", join=100, group=10, nested=5, union=5, static=20),
    Flavour("groups", join=10, group=100, nested=10, union=5),
    Flavour("nested", join=40, group=40, nested=60, union=15, distinct=25),
    Flavour("updates", join=50, group=30, nested=20, updates=60, static=30),
    Flavour("tostream", join=40, group=25, nested=30, union=15, r2s=60, updates=25, kept=60),
    Flavour("keyed", join=60, group=30, nested=15, static=20, updates=20, keyed=100, disorder=10),
    Flavour("multijoins", multi=100, group=10, nested=5, union=5, updates=20, static=10),
    Flavour("disorder", join=30, group=30, nested=20, disorder=100),
    Flavour("rows", join=20, group=25, nested=25, disorder=30, rows=60, internal=12, sample=10, window_where=15),
    Flavour("aggregates", join=15, group=100, nested=15, union=5, distinct=5, updates=30, ordered=60),
    Flavour("outer", join=80, outer=70, group=15, nested=15, updates=20, static=30, rows=10),
    Flavour("subqueries", join=15, subquery=80, outer=10, group=30, nested=10, updates=20, static=30, rows=10),
    Flavour("user", join=20, group=70, nested=20, updates=20, rows=20, internal=8, keyed=10, user=60),
)

#: type -> the values of a cell, simplest first
VALUES: dict[str, Sequence[str]] = {
    "INT": ("0", "1", "2", "3", "NULL", "-1"),
    "BIGINT": ("0", "1", "2", "NULL", "9000000000"),
    "STRING": ("'a'", "'b'", "'ab'", "''", "NULL"),
    "DOUBLE": ("0.0", "0.5", "1.25", "-0.0", "NULL", "NaN"),
    "DECIMAL(6,2)": ("0.00", "1.25", "1.50", "NULL", "-3.75"),
    "DATE": ("2013-01-01", "2013-01-02", "NULL", "1969-12-31"),
    "BOOLEAN": ("false", "true", "NULL"),
}
#: type -> what a predicate compares with
COMPARED = {
    "INT": "1",
    "BIGINT": "1",
    "STRING": "'ab'",
    "DOUBLE": "0.5",
    "DECIMAL(6,2)": "1.25",
    "DATE": "DATE '2013-01-01'",
}
NUMERIC = ("INT", "BIGINT", "DOUBLE", "DECIMAL(6,2)")
ROUGH = "ROUGH"
"""A double that two correct programs may round differently: never a key, never compared."""
