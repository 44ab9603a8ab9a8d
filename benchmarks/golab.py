"""`python -m benchmarks.golab`: Queries 1 to 4 of `[golab 3.6]` under the three state strategies.

    python -m benchmarks.golab [--windows 2000,10000,50000] [--measured 20000] [--step 1000] [--queries 1a,2a]
        [--write]

The trace is generated (`traces.py`), about one connection a tick on each link, and windows are in ticks, as in the
thesis. Each query runs until its windows are full and is then measured for `measured` ticks, in rounds of `step`. The
result is maintained as changes, which is what the thesis's `Rstream(*)` stands for. All strategies must tell the same
changes: a digest of them is compared, and a difference fails the bench.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.local_harness import Measured, markdown, measure, write_table
from benchmarks.traces import COLUMNS, link
from penstock.physical.plan.strategies import Strategy


@dataclass(frozen=True)
class GolabQuery:
    """links: how many it reads; finding: what the thesis measured; plans: in how many ways it is written here."""

    key: str
    title: str
    links: int
    text: str
    finding: str
    plans: int = 1


def _join(protocol: str) -> str:
    return (
        "SELECT L1.source, L1.destination, L2.destination AS other FROM Link1 [RANGE {w} SECONDS] AS L1, "
        "Link2 [RANGE {w} SECONDS] AS L2 WHERE L1.source = L2.source "
        f"AND L1.protocol = '{protocol}' AND L2.protocol = '{protocol}'"
    )


_GONE = "NOT EXISTS (SELECT * FROM {link} [RANGE {{w}} SECONDS] AS N WHERE N.source = {of}.source)"

QUERIES = (
    GolabQuery(
        "1a", "Query 1, join on source, protocol = ftp", 2, _join("ftp"),
        "pattern nearly twice as fast as both others for large windows; direct faster than negative, and degrading",
    ),
    GolabQuery(
        "1b", "Query 1, join on source, protocol = telnet (ten times the results)", 2, _join("telnet"),
        "direct slowest by far; pattern with enough partitions up to ten times faster than negative for large windows",
    ),
    GolabQuery(
        "2a", "Query 2, distinct sources", 1, "SELECT DISTINCT source FROM Link1 [RANGE {w} SECONDS]",
        "pattern ten times faster than both others, and up to a hundred times smaller",
    ),
    GolabQuery(
        "2b", "Query 2, distinct source-destination pairs", 1,
        "SELECT DISTINCT source, destination FROM Link1 [RANGE {w} SECONDS]",
        "pattern about twice as fast as negative; direct poor; pattern still much smaller",
    ),
    GolabQuery(
        "3", "Query 3, negation on source", 2,
        f"SELECT * FROM Link1 [RANGE {{w}} SECONDS] AS L WHERE {_GONE.format(link='Link2', of='L')}",
        "pattern slightly ahead of negative for small windows, behind for large ones (40 % premature expirations)",
    ),
    GolabQuery(
        "4 up", "Query 4, negation pulled up above the join", 3,
        "SELECT * FROM (SELECT L1.source, L1.destination, L3.destination AS other FROM "
        "Link1 [RANGE {w} SECONDS] AS L1, Link3 [RANGE {w} SECONDS] AS L3 WHERE L1.source = L3.source "
        f"AND L1.protocol = 'ftp' AND L3.protocol = 'ftp') AS J WHERE {_GONE.format(link='Link2', of='J')}",
        "pattern with negation pulled up is the best of all plans for large windows", 2,
    ),
    GolabQuery(
        "4 down", "Query 4, negation below the join", 3,
        "SELECT J.source, J.destination, L3.destination AS other FROM (SELECT * FROM Link1 [RANGE {w} SECONDS] AS L "
        f"WHERE L.protocol = 'ftp' AND {_GONE.format(link='Link2', of='L')}) AS J, "
        "Link3 [RANGE {w} SECONDS] AS L3 WHERE J.source = L3.source AND L3.protocol = 'ftp'",
        "negative with negation below beats negative with negation above; best of all for small windows", 2,
    ),
)  # fmt: skip


def script(query: GolabQuery, window: int) -> str:
    streams = [
        f"CREATE STREAM Link{n} ({COLUMNS}) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
        for n in range(1, query.links + 1)
    ]
    return "\n".join([*streams, f"CREATE QUERY q AS {query.text.replace('{w}', str(window))};"])


#: What is measured. Pattern and direct hold the result, to tell its ends; under negative tuples nobody does unless the
#: changes are put into a table, as the thesis's negative tuple approach does.
WAYS: dict[str, dict[str, Any]] = {
    "pattern": {"strategy": Strategy.PATTERN},
    "direct": {"strategy": Strategy.DIRECT},
    "negative": {"strategy": Strategy.NEGATIVE, "view": True},
    "negative, result not kept": {"strategy": Strategy.NEGATIVE},
}
#: Of a query that can be written in several ways: what pattern chooses by cost, and each as it was written.
WRITTEN = {"pattern, as written": {"strategy": Strategy.PATTERN, "as_written": True}}


def run(query: GolabQuery, window: int, measured: int, step: int) -> dict[str, Measured]:
    """All ways over the same trace. Raises AssertionError where they answer differently."""
    inputs = {f"Link{n}": link(n, window + measured) for n in range(1, query.links + 1)}
    text = script(query, window)
    ways = WAYS if query.plans == 1 else {**WRITTEN, **WAYS}
    found = {name: measure(text, inputs, step=step, warm=window, **how) for name, how in ways.items()}
    told = {(m.digest, m.results) for m in found.values()}
    assert len(told) == 1, f"{query.key}, window {window}: the strategies answer differently: {found}"
    return found


#: Where `--write` puts the tables.
PAGE = Path(__file__).parent / "results" / "golab.md"


def table(found: dict[int, dict[str, Measured]]) -> str:
    ways = list(next(iter(found.values())))
    header = ["window", *(f"{n} µs" for n in ways), *(f"{n} KiB" for n in ways), "changes"]
    rows = [
        [
            f"{window:,}",
            *(f"{figures[name].micros:.2f}" for name in ways),
            *(f"{figures[name].state_bytes / 1024:,.0f}" for name in ways),
            f"{figures['pattern'].results:,}",
        ]
        for window, figures in found.items()
    ]
    return markdown(header, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", default="2000,10000,50000")
    parser.add_argument("--measured", type=int, default=20_000)
    parser.add_argument("--step", type=int, default=1000)
    parser.add_argument("--queries", default=",".join(q.key for q in QUERIES))
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    chosen = parser.parse_args(arguments)
    pa.set_cpu_count(1)
    wanted = chosen.queries.split(",")
    for query in (q for q in QUERIES if q.key in wanted):
        run(query, 300, 300, 100)  # compiles
        found = {int(w): run(query, int(w), chosen.measured, chosen.step) for w in chosen.windows.split(",")}
        made = table(found)
        print(f"### {query.title}\n\nThe thesis: {query.finding}.\n\n{made}\n", flush=True)
        if chosen.write:
            write_table(PAGE, f"### {query.title}", made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
