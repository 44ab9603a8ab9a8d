"""The frequencies of each construct in random cases: flavours, one property test each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Flavour:
    """How often a case uses each construct, in percent. One property test per flavour."""

    name: str
    join: int = 30
    group: int = 30
    nested: int = 20
    union: int = 10
    distinct: int = 20
    r2s: int = 30
    updates: int = 0
    keyed: int = 0
    nrr: int = 0
    clock: int = 0
    static: int = 20
    disorder: int = 20
    calendar: int = 10
    sets: int = 0
    limit: int = 0
    kept: int = 0
    """WSTREAM and RESTORE"""
    multi: int = 0
    rows: int = 0
    internal: int = 0
    sample: int = 0
    window_where: int = 0
    ordered: int = 0
    combined: int = 0
    """Aggregates of conditions, of bits, of texts and of two values"""
    approximate: int = 0
    user: int = 0
    outer: int = 0
    subquery: int = 0
    frequency: int = 0
    """FREQUENCY in windows, and half as often in SELECT"""
    band: int = 0
    probe: int = 0
    """Rows of one instant joined with groups of an aggregate"""
    temporal: int = 0
    """A query over periods, in place of all others (`testing/random/periods.py`)"""


FLAVOURS = (
    Flavour("temporal", temporal=100),
    Flavour("windows", join=0, group=20, nested=0, static=0),
    Flavour("joins", join=100, group=10, nested=5, union=5, static=20),
    Flavour("groups", join=10, group=100, nested=10, union=5),
    Flavour("nested", join=40, group=40, nested=60, union=15, distinct=25),
    Flavour("updates", join=50, group=30, nested=20, updates=60, static=30),
    Flavour("tostream", join=40, group=25, nested=30, union=15, r2s=60, updates=25, kept=60, multi=10, rows=20),
    Flavour("keyed", join=60, group=30, nested=15, static=20, updates=20, keyed=100, disorder=10),
    Flavour("clock", join=40, group=30, nested=10, static=10, updates=20, clock=100, disorder=30, calendar=50),
    Flavour("nrr", join=20, group=30, nested=20, updates=10, static=10, nrr=100, disorder=20, rows=25),
    Flavour("multijoins", multi=100, group=10, nested=5, union=5, updates=20, static=10),
    Flavour("disorder", join=30, group=30, nested=20, disorder=100),
    Flavour(
        "rows", join=20, group=25, nested=25, disorder=30, rows=60, internal=12, sample=10, window_where=15, kept=8
    ),
    Flavour("aggregates", join=15, group=100, nested=15, union=5, distinct=5, updates=30, rows=25, ordered=60),
    Flavour(
        "combined", join=15, group=100, nested=15, union=5, distinct=10, updates=30, rows=25, ordered=15, combined=80
    ),
    Flavour("approximate", join=20, group=100, nested=20, updates=30, rows=25, ordered=15, approximate=70),
    Flavour("outer", join=80, outer=70, group=15, nested=15, updates=20, static=30, rows=10),
    Flavour(
        "bands", join=100, band=85, outer=30, group=10, nested=10, union=5, updates=25, static=30, rows=15, disorder=30
    ),
    Flavour(
        "probes", join=5, probe=85, group=10, nested=25, union=5, distinct=5, r2s=50, updates=30, rows=15, ordered=20
    ),
    Flavour("subqueries", join=15, subquery=80, outer=10, group=30, nested=10, updates=20, static=30, rows=10),
    Flavour("user", join=20, group=70, nested=20, updates=20, rows=20, internal=8, keyed=10, user=60),
    Flavour(
        "frequency",
        join=25,
        group=40,
        nested=35,
        distinct=10,
        r2s=25,
        disorder=25,
        frequency=50,
        updates=15,
        nrr=15,
        rows=20,
        outer=5,
        subquery=8,
        sample=5,
        window_where=10,
        limit=5,
        sets=5,
    ),
    Flavour("sets", join=15, group=25, nested=35, union=20, distinct=15, updates=25, static=35, sets=50, limit=40),
)
