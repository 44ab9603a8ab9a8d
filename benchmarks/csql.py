"""`python -m benchmarks.csql`: the experiment of `[csql 10]`, the frequency operator against window identifiers.

    python -m benchmarks.csql [--write] [--spark] [--quick] [--rows 600000] [--round 100000] [--repetitions 2]

Figures 3 and 4: AVG without and with GROUP BY over windows of W tuples, evaluated at every F-th. Penstock's query and
the peer (`window_ids.py`) run in the local runtime, in the same plan around the operator that is compared, in the same
rounds over the same stream; what is counted is the CPU time of whole rounds, the fastest of the repetitions, taken in
turns. Their answers must be equal, or the bench fails. Figure 5: windows in time evaluated by tuples, and windows in
tuples evaluated in time, which the peer cannot do: time by answer.

--spark adds a smaller grid on Spark (`csql_spark.py`), --write puts tables and pictures into the docs (and means
--spark), --quick is a grid of two by two.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from benchmarks.csql_queries import GROUPED, PLAIN, counted, grid, script, stream
from benchmarks.local_harness import Measured, measure, write_table
from benchmarks.window_ids import by_window_ids

ROOT = Path(__file__).parent.parent
#: Where `--write` puts the tables, and the pictures.
PAGE = ROOT / "benchmarks" / "results" / "csql.md"
PICTURES = ROOT / "docs" / "pictures"

FREQUENCIES = (100, 300, 1_000, 3_000, 10_000)
#: Lengths of windows, in per cent of the frequency.
PERCENTS = (10, 50, 100, 150, 200, 300)
#: Of figure 5. Tuples come at one a millisecond.
SECONDS = (1, 3, 10, 30)
MILLISECONDS = (100, 300, 1_000, 3_000, 10_000)
TUPLES = (100, 1_000, 10_000)

RATIO = "### Figures 3 and 4, {kind}: the frequency operator's time by that of window identifiers"
BY_TUPLES = "### Figure 5: a window in time, evaluated at every F-th tuple (ms by answer)"
BY_TIME = "### Figure 5, the converse: a window of tuples, evaluated at every T (ms by answer)"


@dataclass(frozen=True)
class Cell:
    """CPU microseconds a tuple of both sides."""

    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def text(self) -> str:
        return f"{self.ratio:.2f} ({self.ours:.3f} / {self.theirs:.3f})"


def compare(table: pa.Table, every: int, percent: int, grouped: bool, given: argparse.Namespace) -> Cell:
    """One cell of figure 3 or 4. Raises AssertionError where the sides answer differently."""
    text = script(counted(every * percent // 100, every), grouped)
    sides = (None, by_window_ids)
    best: list[Measured | None] = [None, None]
    for _ in range(given.repetitions):
        for side, peer in enumerate(sides):
            found = measure(text, {"S": table}, step=given.round, warm=0, peer=peer)
            before = best[side]
            best[side] = found if before is None or found.seconds < before.seconds else before
    ours, theirs = best
    assert ours is not None and theirs is not None
    assert (ours.digest, ours.results) == (theirs.digest, theirs.results), f"{text}: {ours}, {theirs}"
    assert ours.results > 0
    return Cell(ours.micros, theirs.micros)


def mixed(table: pa.Table, window: str, given: argparse.Namespace) -> float:
    """Milliseconds by answer."""
    found = min(
        (measure(script(window), {"S": table}, step=given.round, warm=0) for _ in range(given.repetitions)),
        key=lambda one: one.seconds,
    )
    assert found.results > 0, window
    return found.seconds / found.results * 1e3


def figures_3_and_4(given: argparse.Namespace) -> dict[str, dict[tuple[int, int], Cell]]:
    table = stream(given.rows)
    found: dict[str, dict[tuple[int, int], Cell]] = {}
    for kind, grouped in ((PLAIN, False), (GROUPED, True)):
        for percent in (100, 300):  # compiles
            compare(table.slice(0, given.round), given.frequencies[0], percent, grouped, given)
        found[kind] = {
            (every, percent): compare(table, every, percent, grouped, given)
            for every in given.frequencies
            for percent in given.percents
        }
        texts = {key: cell.text for key, cell in found[kind].items()}
        _show(RATIO.format(kind=kind), grid(given.percents, lambda p: f"W = {p} % of F", texts, "F, tuples"), given)
    return found


def figure_5(given: argparse.Namespace) -> tuple[dict[tuple[int, int], float], dict[tuple[int, int], float]]:
    """By (frequency in tuples, window in seconds), and by (frequency in milliseconds, window in tuples)."""
    table = stream(given.rows // 2)
    mixed(table.slice(0, given.round), "RANGE 1 SECOND, FREQUENCY 100 TUPLES", given)  # compiles
    mixed(table.slice(0, given.round), "RANGE 100 TUPLES, FREQUENCY 1 SECOND", given)
    by_tuples = {
        (every, seconds): mixed(table, f"RANGE {seconds} SECONDS, FREQUENCY {every} TUPLES", given)
        for every in given.frequencies
        for seconds in given.seconds
    }
    texts = {key: f"{value:.3f}" for key, value in by_tuples.items()}
    _show(BY_TUPLES, grid(given.seconds, lambda s: f"window {s} s", texts, "F, tuples"), given)
    by_time = {
        (period, rows): mixed(table, f"RANGE {rows} TUPLES, FREQUENCY {period} MILLISECONDS", given)
        for period in given.milliseconds
        for rows in given.tuples
    }
    texts = {key: f"{value:.3f}" for key, value in by_time.items()}
    _show(BY_TIME, grid(given.tuples, lambda n: f"window {n:,} tuples", texts, "T, ms"), given)
    return by_tuples, by_time


def _show(heading: str, made: str, given: argparse.Namespace) -> None:
    print(f"{heading}\n\n{made}\n", flush=True)
    if given.write:
        write_table(PAGE, heading, made)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--round", type=int, default=100_000, help="tuples that are handed in at once")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--spark", action="store_true", help="on Spark too")
    parser.add_argument("--spark-rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="a grid of two by two")
    parser.add_argument("--write", action="store_true", help=f"put tables and pictures into {PAGE.name}; on Spark too")
    parser.add_argument(
        "--pictures", type=Path, default=None, help="put the pictures there, whatever becomes of tables"
    )
    chosen = parser.parse_args(given)
    few = 2 if chosen.quick else None
    chosen.frequencies, chosen.percents = FREQUENCIES[:few], PERCENTS[-few:] if few else PERCENTS
    chosen.seconds, chosen.milliseconds, chosen.tuples = SECONDS[:few], MILLISECONDS[:few], TUPLES[:few]
    if chosen.write:
        chosen.spark, chosen.pictures = True, PICTURES
    return chosen


def main(given: Sequence[str] | None = None) -> int:
    chosen = arguments(given)
    pa.set_cpu_count(1)
    ratios = figures_3_and_4(chosen)
    answers = figure_5(chosen)
    if chosen.pictures is not None:
        from benchmarks import pictures

        chosen.pictures.mkdir(parents=True, exist_ok=True)
        drawn = {kind: {key: cell.ratio for key, cell in cells.items()} for kind, cells in ratios.items()}
        pictures.ratios(drawn, chosen.pictures / "csql-ratio.svg")
        pictures.mixed(*answers, chosen.pictures / "csql-mixed.svg")
    if chosen.spark:
        from benchmarks import csql_spark

        for heading, made in csql_spark.tables(chosen.spark_rows, chosen.quick):
            _show(heading, made, chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
