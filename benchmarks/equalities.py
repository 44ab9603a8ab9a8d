"""`python -m benchmarks.equalities`: what NOT IN, rows of values and null-safe equalities cost as relations grow.

    python -m benchmarks.equalities [--rows 2000,20000,200000] [--limit 60] [--forms ...] [--ways ...] [--write]

Two relations of as many rows, of which half have a partner and some are NULL; static, or of rows that come one by one
(`growing`), with a static relation beside such rows (`look-up`). Each form runs once to compile, and then once at each
number of rows, in this process. The slope is the power of the number of rows by which the time grows, over the last
two: about 1 where a hash finds partners, 2 where every row meets every other. A form that would take more than `limit`
seconds, if it grew with that power, is left out. The number of rows that a form answers is computed beside, and a wrong
one fails the bench.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from benchmarks import records
from benchmarks.local_harness import markdown
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

Row = tuple[str | None, int | None]
#: How many rows of each relation have NULL in k, and as many others in g.
GAPS = 5

#: Way -> the relations whose rows come one by one.
WAYS = {"static": "", "look-up": "l", "growing": "lr"}


def left(n: int) -> list[Row]:
    return [(None if i < GAPS else f"x{i}", None if GAPS <= i < 2 * GAPS else i % 10) for i in range(n)]


def right(n: int) -> list[Row]:
    """The rows from n/2 on, in the same way; those with NULL have no partner that is equal."""
    made: list[Row] = [(f"x{i}", i % 10) for i in range(n // 2, n // 2 + n - 2 * GAPS)]
    return made + [(None, 3)] * GAPS + [("none", None)] * GAPS


def keys(rows: Sequence[Row]) -> set[str]:
    return {k for k, _ in rows if k is not None}


def apart(one: Sequence[Row], other: Sequence[Row]) -> list[Row]:
    """The rows of `one` with a k, which no row of `other` has."""
    alone = keys(one) - keys(other)
    return [row for row in one if row[0] in alone]


def agreeing(one: Sequence[Row], other: Sequence[Row]) -> int:
    """How many rows of `one` are (NOT IN is not TRUE) equal to a row of `other` but for NULLs."""
    whole, by_k = set(other), {k for k, _ in other if k is not None}
    by_g, blind = {g for _, g in other if g is not None}, {g for k, g in other if k is None}
    open_k = {k for k, g in other if g is None}
    found = 0
    for k, g in one:
        if k is None:
            found += g is None or g in by_g or bool(open_k)
        elif g is None:
            found += k in by_k or bool(blind)
        else:
            found += (k, g) in whole or g in blind or k in open_k
    return found


#: Form -> (query, how many rows it answers).
FORMS: dict[str, tuple[str, Callable[[list[Row], list[Row]], int]]] = {
    "NOT EXISTS (for comparison)": (
        "SELECT k FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k)",
        lambda one, other: len(one) - len(keys(one) & keys(other)),
    ),
    "NOT IN": (
        "SELECT k FROM l WHERE k NOT IN (SELECT k FROM r WHERE k IS NOT NULL)",
        lambda one, other: len(keys(one) - keys(other)),
    ),
    "<> ALL": ("SELECT k FROM l WHERE k <> ALL (SELECT k FROM r)", lambda one, other: 0),
    "NOT (k = ANY ..), correlated": (
        "SELECT k FROM l WHERE NOT (k = ANY (SELECT k FROM r WHERE r.g = l.g))",
        lambda one, other: GAPS + sum(g not in (None, 3) for _, g in apart(one, other)),
    ),
    "IN in the select list": ("SELECT k, k IN (SELECT k FROM r) AS i FROM l", lambda one, other: len(one)),
    "row NOT IN": (
        "SELECT k FROM l WHERE (k, g) NOT IN (SELECT k, g FROM r)",
        lambda one, other: len(one) - agreeing(one, other),
    ),
    "row IN in the select list": ("SELECT k, (k, g) IN (SELECT k, g FROM r) AS i FROM l", lambda one, other: len(one)),
    "JOIN by <=>": (
        "SELECT l.k, r.g FROM l JOIN r ON l.k <=> r.k",
        lambda one, other: len(keys(one) & keys(other)) + GAPS * GAPS,
    ),
    "LEFT JOIN by <=>": (
        "SELECT l.k, r.g FROM l LEFT JOIN r ON l.k <=> r.k",
        lambda one, other: len(one) - GAPS + GAPS * GAPS,
    ),
    "FULL JOIN by IS NOT DISTINCT FROM": (
        "SELECT l.k, r.g FROM l FULL JOIN r ON l.k IS NOT DISTINCT FROM r.k AND l.g IS NOT DISTINCT FROM r.g",
        lambda one, other: len(one) + len(other) - len(set(one) & set(other)),
    ),
    "EXISTS by <=>": (
        "SELECT k FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k <=> l.k)",
        lambda one, other: len(keys(one) & keys(other)) + GAPS,
    ),
    "NOT EXISTS by <=>": (
        "SELECT k FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k <=> l.k)",
        lambda one, other: len(keys(one) - keys(other)),
    ),
}


def table(rows: Sequence[Row]) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([k for k, _ in rows], pa.string()),
            "g": pa.array([g for _, g in rows], pa.int32()),
            "at": pa.array(range(len(rows)), pa.int32()),
        }
    )


def seconds(form: str, way: str, n: int) -> float:
    """Raises SystemExit where the answer is wrong."""
    text, count = FORMS[form]
    declared = ""
    for name in "lr":
        if name in WAYS[way]:
            declared += f"CREATE STREAM {name} (k STRING, g INT, at INT) FROM MEMORY () TIMESTAMP BY at; "
            text = re.sub(rf"(FROM|JOIN) {name}(?![.\w])", rf"\1 {name} [RANGE UNBOUNDED]", text)
        else:
            declared += f"CREATE RELATION {name} (k STRING, g INT, at INT) FROM MEMORY (); "
    query = bind_script(f"{declared}CREATE QUERY q AS {text};").queries
    first, second = left(n), right(n)
    inputs = {"l": table(first), "r": table(second)}
    begin = time.perf_counter()
    answer = run_local(query, inputs).tables["q"]
    took = time.perf_counter() - begin
    rows, expected = remaining(answer), count(first, second)
    if rows != expected:
        raise SystemExit(f"{form}, {way}, {n:,} rows: {rows:,} rows answered, {expected:,} are right")
    return took


def remaining(answer: pa.Table) -> int:
    """How many rows an answer has, or changes leave."""
    if "op" not in answer.column_names:
        return answer.num_rows
    ops = answer["op"].to_pylist()
    return ops.count("+") - ops.count("-")


def power(sizes: Sequence[int], times: Sequence[float]) -> float:
    return math.log(times[-1] / times[-2]) / math.log(sizes[-1] / sizes[-2])


def measured(form: str, way: str, sizes: Sequence[int], limit: float) -> dict[str, Any]:
    seconds(form, way, 100)  # compiles
    seconds(form, way, sizes[0])
    found: list[float] = []
    for n in sizes:
        if len(found) > 1 and found[-1] * (n / sizes[len(found) - 1]) ** power(sizes[: len(found)], found) > limit:
            break
        found.append(seconds(form, way, n))
    reached = sizes[: len(found)]
    slope = power(reached, found) if len(found) > 1 else math.nan
    times = {f"{n}": round(took, 4) for n, took in zip(reached, found, strict=True)}
    return {"form": form, "way": way, "seconds": times, "slope": round(slope, 2)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="2000,20000,200000")
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--write", action="store_true", help="put the figures into benchmarks/results/")
    chosen = parser.parse_args(arguments)
    sizes = [int(n) for n in chosen.rows.split(",")]
    figures = []
    for way in chosen.ways:
        for form in chosen.forms:
            figures.append(measured(form, way, sizes, chosen.limit))
            print(figures[-1], flush=True)
    header = ["way", "form", *(f"{n:,} rows" for n in sizes), "slope"]
    rows = []
    for f in figures:
        times = (f["seconds"].get(str(n)) for n in sizes)
        rows.append([f["way"], f["form"], *("" if t is None else f"{t:.3f} s" for t in times), str(f["slope"])])
    print(markdown(header, rows))
    if chosen.write:
        print(records.save("equalities", "", figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
