"""The kinds of bad queries: what each reads, what is posted for it, and what it takes to be rid of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.bad_queries.faults import AT_ADVANCE, AT_MAKING, AT_WRITING

STREAM = "CREATE STREAM bad (n BIGINT, k BIGINT, c BIGINT, at BIGINT) FROM HTTP () TIMESTAMP BY at UNIT MICROSECOND"
#: Rows of a burst, in a second or at one instant, and microseconds of an hour.
BURST, HOUR = 20_000, 3_600_000_000
#: Columns of the wide rows, and bytes of the long texts.
WIDE, LONG = 1_000, 2**20


@dataclass(frozen=True)
class Kind:
    """A kind of bad queries.

    Args:
        query: behind `CREATE QUERY bad_query`, INTO included; empty where only `select` is bad.
        tables: yields what is posted to the stream `bad`, with a pause between two posts.
        stream: its declaration.
        select: a one-time SELECT that is sent meanwhile.
        spoil: spoils what the query writes to, when it has been registered; gets the folder for results.
        may_go_on: whether it does not have to end by itself, since what it takes is bounded or what it is asked for.
    """

    query: str
    tables: Callable[[], Iterator[pa.Table]]
    stream: str = STREAM
    select: str = ""
    spoil: Callable[[Path], None] | None = None
    may_go_on: bool = False


def burst(first: int = 0, count: int = BURST, step: int = 50, at: int = 0) -> pa.Table:
    """Return rows with numbers of their own; c is the same in all of them. step: microseconds between two."""
    number = np.arange(first, first + count)
    return pa.table({"n": number, "k": number % 10, "c": np.zeros(count, np.int64), "at": at + (number - first) * step})


def spread() -> Iterator[pa.Table]:
    """Yield a burst over a second, and rows behind it."""
    yield burst()
    yield burst(BURST, 2, HOUR // 60, 2_000_000)


def at_once() -> Iterator[pa.Table]:
    """Yield a burst at one instant, and rows behind it."""
    yield burst(step=0)
    yield burst(BURST, 2, HOUR // 60, 2_000_000)


def few() -> Iterator[pa.Table]:
    """Yield three rows over two hours."""
    yield burst(count=3, step=HOUR)


def steady() -> Iterator[pa.Table]:
    """Yield some rows each second."""
    for second in range(600):
        yield burst(100 * second, 100, 10_000, second * 1_000_000)


def new_keys() -> Iterator[pa.Table]:
    """Yield many rows each second."""
    for second in range(600):
        yield burst(100_000 * second, 100_000, 10, second * 1_000_000)


def wide() -> Iterator[pa.Table]:
    for second in range(600):
        ticks = pa.array(second * 1_000_000 + 10_000 * np.arange(100))
        yield pa.table({"at": ticks} | {f"c{i}": pa.array(np.arange(100) + i) for i in range(WIDE)})


def long_texts() -> Iterator[pa.Table]:
    for second in range(600):
        texts = [chr(97 + i) * LONG for i in range(4)]
        yield pa.table({"at": [second * 1_000_000 + 100_000 * i for i in range(4)], "text": texts})


def no_folder(results: Path) -> None:
    """Put a file where the folder of the query's files was."""
    place = results / "bad"
    shutil.rmtree(place, ignore_errors=True)
    place.write_text("in the way")


_PAIRS = "AS SELECT a.n, b.n AS m FROM bad [RANGE 1 DAY] AS a, bad [RANGE 1 DAY] AS b"
_KEPT = STREAM + " RETAIN 1 DAY"
#: Statements with `{results}` for a folder.
KINDS: Mapping[str, Kind] = {
    "RSTREAM over a fine SLIDE": Kind(
        "AS RSTREAM(SELECT COUNT(*) AS n FROM bad [RANGE 1 HOUR SLIDE 1 MICROSECOND])", few, may_go_on=True
    ),
    "cross join": Kind(_PAIRS, spread, may_go_on=True),
    "cross join at one instant": Kind(_PAIRS, at_once),
    "join by one key": Kind(_PAIRS + " WHERE a.c = b.c", spread, may_go_on=True),
    "join by one key at one instant": Kind(_PAIRS + " WHERE a.c = b.c", at_once),
    "join by OR": Kind(_PAIRS + " WHERE a.k = b.k OR a.c = b.c", spread, may_go_on=True),
    "join by one key, counted": Kind(
        "AS SELECT COUNT(*) AS pairs FROM bad [RANGE 1 DAY] AS a, bad [RANGE 1 DAY] AS b WHERE a.c = b.c",
        spread,
        may_go_on=True,
    ),
    "ARRAY_AGG without bound": Kind("AS SELECT ARRAY_AGG(n) AS everything FROM bad", spread, may_go_on=True),
    "GROUP BY ever new keys": Kind("AS SELECT n, COUNT(*) AS c FROM bad GROUP BY n", new_keys, may_go_on=True),
    "DISTINCT without window": Kind("AS SELECT DISTINCT n, k FROM bad", new_keys, may_go_on=True),
    "a function that raises": Kind("AS SELECT raising(n) AS x FROM bad", steady),
    "a function that returns a bad type": Kind("AS SELECT mistyped(n) AS x FROM bad", steady),
    "a function that sleeps": Kind("AS SELECT sleeping(n) AS x FROM bad", steady, may_go_on=True),
    "a function that takes memory": Kind("AS SELECT hungry(n) AS x FROM bad", steady),
    "a function that ends its process": Kind("AS SELECT dying(n) AS x FROM bad", steady),
    "a sink that fails": Kind(
        "INTO FILES (path '{results}/bad', format 'csv') AS SELECT n FROM bad WHERE n >= 0", steady, spoil=no_folder
    ),
    "an exception where an operator is made": Kind(f"AS SELECT SUM(calm(n)) AS x FROM bad [ROWS {AT_MAKING}]", steady),
    "an exception where it advances": Kind(f"AS SELECT SUM(calm(n)) AS x FROM bad [ROWS {AT_ADVANCE}]", steady),
    "an exception where state is written": Kind(f"AS SELECT SUM(calm(n)) AS x FROM bad [ROWS {AT_WRITING}]", steady),
    "a SELECT that joins all": Kind(
        "",
        spread,
        _KEPT,
        "SELECT a.n, b.n AS m FROM bad [RANGE 1 DAY] AS a, bad [RANGE 1 DAY] AS b WHERE a.n + b.n >= 0",
    ),
    "rows of 1,000 columns": Kind(
        "AS SELECT * FROM bad WHERE c0 >= 0",
        wide,
        f"CREATE STREAM bad ({', '.join(f'c{i} BIGINT' for i in range(WIDE))}, at BIGINT) FROM HTTP ()"
        " TIMESTAMP BY at UNIT MICROSECOND",
        may_go_on=True,
    ),
    "texts of a megabyte": Kind(
        "AS SELECT text, COUNT(*) AS c FROM bad [RANGE 10 SECONDS] GROUP BY text",
        long_texts,
        "CREATE STREAM bad (text STRING, at BIGINT) FROM HTTP () TIMESTAMP BY at UNIT MICROSECOND",
        may_go_on=True,
    ),
}
