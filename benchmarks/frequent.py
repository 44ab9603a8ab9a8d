"""Frequent items: figure 6.3 of `[golab 6.3]`, and the cost beside that of exact grouping.

python -m benchmarks.frequent [--starts 100] [--packets 100000] [--rows 1000000] [--write]

N packets from random starts of a trace (`traces.packets`), sub-windows of b = 20, 100 and 500 packets, lists of k = 1
to 10, with the thesis' bound and the sharper one. The figures are computed from the lists by their definition; for one
start of each b the engine answers the same window, and what it tells must be the same. Part two runs FREQUENT beside q2
of the common bench over the same rows in this process, by CPU time; counts of told items must be those of grouping.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import traces
from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "benchmarks" / "results" / "frequent.md"
PICTURES = ROOT / "docs" / "pictures"
BLOCKS = (20, 100, 500)
LISTS = tuple(range(1, 11))
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
Key = tuple[int, int]


@dataclass(frozen=True)
class Outcome:
    """What one window gives. missed: δ in % of N; above: items with a true count above δ; told: items told; found: % of
    those above that are told (NaN where none is); pairs: items in lists; error: mean relative error of told counts, %.
    """

    missed: float
    above: float
    told: float
    found: float
    pairs: float
    error: float


def lists_of(items: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (pane, item, count, rank) of every item of every pane, rank 0 for the most frequent."""
    panes = np.arange(len(items)) // block
    keys, counts = np.unique(panes * traces.PACKET_SOURCES + items, return_counts=True)
    pane, item = keys // traces.PACKET_SOURCES, keys % traces.PACKET_SOURCES
    order = np.lexsort((item, -counts, pane))
    pane, item, counts = pane[order], item[order], counts[order]
    starts = np.searchsorted(pane, pane)
    return pane, item, counts, np.arange(len(pane)) - starts


def outcome(items: np.ndarray, lists: tuple[np.ndarray, ...], k: int, thesis: bool) -> tuple[Outcome, dict[int, int]]:
    """Return the figures of a window, and the told items with their counts."""
    pane, item, counts, rank = lists
    recorded = np.bincount(item[rank < k], counts[rank < k], traces.PACKET_SOURCES).astype(np.int64)
    true = np.bincount(items, minlength=traces.PACKET_SOURCES)
    missed = int(counts[rank == k].sum())
    if thesis:
        more = np.isin(pane, pane[rank == k])
        missed = int(counts[(rank == k - 1) & more].sum())
    told, above = recorded > missed, true > missed
    found = 100.0 * told.sum() / above.sum() if above.any() else np.nan
    error = 100.0 * ((true - recorded)[told] / true[told]).mean() if told.any() else np.nan
    figures = Outcome(100.0 * missed / len(items), above.sum(), told.sum(), found, float((rank < k).sum()), error)
    return figures, {int(i): int(recorded[i]) for i in np.flatnonzero(told)}


def measured(trace: np.ndarray, size: int, starts: int) -> dict[bool, dict[Key, Outcome]]:
    """Return by bound and (k, b) the means over the starts."""
    draw = np.random.default_rng(63)
    begun = draw.integers(0, len(trace) - size, starts)
    found: dict[bool, dict[Key, list[Outcome]]] = {True: {}, False: {}}
    for number, start in enumerate(begun):
        items = trace[start : start + size]
        for block in BLOCKS:
            lists = lists_of(items, block)
            for k in LISTS:
                for thesis in (True, False):
                    figures, told = outcome(items, lists, k, thesis)
                    found[thesis].setdefault((k, block), []).append(figures)
                    if number == 0 and k in (2, 7):
                        check(items, block, k, thesis, told)
    return {thesis: {key: mean(rows) for key, rows in by.items()} for thesis, by in found.items()}


def mean(rows: list[Outcome]) -> Outcome:
    columns = [np.array([getattr(row, f.name) for row in rows], float) for f in fields(Outcome)]
    return Outcome(*(float(np.nanmean(c)) if np.isfinite(c).any() else float("nan") for c in columns))


def check(items: np.ndarray, block: int, k: int, thesis: bool, told: Mapping[int, int]) -> None:
    """Compare with what the engine tells of the last window."""
    size = len(items) // block * block
    script = f"""SET frequent_bound = '{"thesis" if thesis else "sharper"}';
    CREATE STREAM p (ts BIGINT, source INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY q AS SELECT source, COUNT(*) AS n FROM p [RANGE {size} SECONDS SLIDE {block} SECONDS]
    GROUP BY source FREQUENT {k};"""
    table = pa.table({"ts": np.arange(1, len(items) + 1), "source": items.astype(np.int32)})
    answer = run_local(bind_script(script).queries, {"p": table}).tables["q"]
    now: dict[int, int] = {}
    told_so_far = answer.filter(pc.less_equal(answer["ts"], size))
    for row in told_so_far.sort_by([("ts", "ascending"), ("op", "descending")]).to_pylist():
        if row["op"] == "+":
            now[row["source"]] = row["n"]
        elif now.get(row["source"]) == row["n"]:
            del now[row["source"]]
    if now != dict(told):
        raise AssertionError(f"b = {block}, k = {k}: the engine tells {now}, the definition {dict(told)}")


TITLES = (
    ("missed", "a: mean δ, % of N"),
    ("above", "b: items truly above δ"),
    ("told", "c: items told"),
    ("found", "d: told of those above δ, %"),
    ("pairs", "e: pairs held"),
    ("error", "f: mean relative error of told counts, %"),
)


def tables(found: Mapping[bool, Mapping[Key, Outcome]]) -> Iterator[str]:
    for name, title in TITLES:
        yield f"**6.3 {title}** (thesis' bound | sharper bound)\n"
        yield "| k | " + " | ".join(f"b = {b}" for b in BLOCKS) + " | " + " | ".join(f"b = {b}" for b in BLOCKS) + " |"
        yield "|---|" + "---|" * (2 * len(BLOCKS))
        for k in LISTS:
            cells = [_cell(getattr(found[thesis][k, b], name)) for thesis in (True, False) for b in BLOCKS]
            yield f"| {k} | " + " | ".join(cells) + " |"
        yield ""


def _cell(value: float) -> str:
    if np.isnan(value):
        return "none"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def claims(found: Mapping[bool, Mapping[Key, Outcome]]) -> Iterator[str]:
    """Say of each claim of the chapter what it measures here, with the thesis' bound and the sharper one."""
    yield "| claim of `[golab 6.3]` | thesis' bound | sharper bound |"
    yield "|---|---|---|"
    for claim, judge in CLAIMS:
        yield f"| {claim} | {judge(found[True])} | {judge(found[False])} |"


def _falls(values: list[float]) -> str:
    steps = [b <= a * 1.001 for a, b in pairwise(values)]
    return f"{sum(steps)} of {len(steps)} steps"


def _least(found: Mapping[Key, Outcome], lists: Sequence[int]) -> float:
    return min(found[k, b].found for k in lists for b in BLOCKS)


def _each(found: Mapping[Key, Outcome], name: str, k: int) -> str:
    return ", ".join(f"{getattr(found[k, b], name):.1f}" for b in BLOCKS)


CLAIMS = (
    ("a: δ falls with k", lambda f: _falls([f[k, b].missed for b in BLOCKS[:1] for k in LISTS]) + " at b = 20"),
    ("a: about 5 % at k = 5 (b = 20, 100, 500)", lambda f: _each(f, "missed", 5) + " %"),
    (
        "a: δ rises as b falls",
        lambda f: (
            "at k = " + ", ".join(str(k) for k in LISTS if f[k, 20].missed >= f[k, 100].missed >= f[k, 500].missed)
        ),
    ),
    ("b: 3 to 4 items above δ at k = 5", lambda f: _each(f, "above", 5)),
    ("c: items told rise with k", lambda f: _falls([-f[k, 20].told for k in LISTS]) + " at b = 20"),
    ("d: at least 80 % told for k ≥ 3", lambda f: f"least {_least(f, LISTS[2:]):.1f} %"),
    ("d: misses very rare for b = 20, k > 7", lambda f: f"least {min(f[k, 20].found for k in LISTS[7:]):.1f} % told"),
    ("e: pairs far below N for large b", lambda f: f"b = 500, k = 10: {f[10, 500].pairs:,.0f}"),
    ("f: error below 2 % for b = 20, k ≥ 7", lambda f: f"at most {max(f[k, 20].error for k in LISTS[6:]):.2f} %"),
)


def cost(rows: int) -> Iterator[str]:
    """Measure FREQUENT beside q2, over the same rows and windows, by CPU time of this process."""
    draw = np.random.default_rng(2)
    table = pa.table(
        {
            "ts": np.sort(draw.integers(0, rows // 10, rows)),
            "src": traces.packets(2, rows).astype(np.int32),
            "bytes": draw.integers(40, 1500, rows).astype(np.float64),
        }
    )
    stream = "CREATE STREAM C (ts BIGINT, src INT, bytes DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;"
    grouped = "FROM C [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY src"
    queries = {
        "q2: COUNT(*), SUM(bytes) by src": f"SELECT RSTREAM(src, COUNT(*) AS n, SUM(bytes) AS total) {grouped}",
        "COUNT(*) by src": f"SELECT RSTREAM(src, COUNT(*) AS n) {grouped}",
        "FREQUENT 10": f"SELECT RSTREAM(src, COUNT(*) AS n) {grouped} FREQUENT 10",
    }
    yield f"| {rows:,} rows, 10 s tumbling | CPU s, best of 3 | rows/s of CPU | rows of the answer |"
    yield "|---|---|---|---|"
    answers: dict[str, pa.Table] = {}
    for name, text in queries.items():
        bound = bind_script(f"{stream}CREATE QUERY q AS {text};").queries
        best = np.inf
        for _ in range(3):
            begun = time.process_time()
            answers[name] = run_local(bound, {"C": table}).tables["q"]
            best = min(best, time.process_time() - begun)
        yield f"| {name} | {best:.2f} | {rows / best:,.0f} | {answers[name].num_rows:,} |"
    exact = {(r["ts"], r["src"]): r["n"] for r in answers["COUNT(*) by src"].to_pylist()}
    for row in answers["FREQUENT 10"].to_pylist():
        # In tumbling windows the counts of told items are exact.
        assert exact[row["ts"], row["src"]] == row["n"], row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--packets", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help=f"put tables and pictures into {PAGE.name}")
    given = parser.parse_args()
    found = measured(traces.packets(1, 5 * given.packets), given.packets, given.starts)
    text = "\n".join([*claims(found), "", *cost(given.rows), "", *tables(found)])
    print(text)
    if given.write:
        from benchmarks import pictures

        pictures.frequent(found, TITLES, PICTURES / "frequent.svg")
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
