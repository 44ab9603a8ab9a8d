"""`make bench`: all sides over the same files, answers compared, a table, and a file with the figures.

Each side of each query runs in a process of its own, one after the other. Its answer is compared with DuckDB's over
the whole history: a wrong answer fails the bench, however fast. `net` begins when the Spark session stands and is
warm, and ends with the query; `steady` is the time of the batches alone when the process runs the query again. Where
another side would take hours it runs on fewer rows, and says so. Flink and Bytewax have sides of some queries; each
needs an environment of its own (docs/decisions/fair-benches.md), whose interpreter is given.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import answers, data, processes, records
from benchmarks.queries import AS_FLINK_WRITES, OURS, QUERIES, BenchQuery

ROOT = Path(__file__).resolve().parents[1]
MODULES = {"penstock": "benchmarks.penstock_side", "native": "benchmarks.native"}
PEERS = {"flink": "benchmarks.peers.flink_side", "bytewax": "benchmarks.peers.bytewax_side"}
#: Queries that they have.
PEERS_QUERIES = ("q10",)
#: On how many rows at the most a side runs any query.
SIDE_ROWS = {"bytewax": 500_000}


@dataclass(frozen=True)
class Figure:
    """One side of one query. cpu_seconds: of the whole process tree, with its start and both runs; problem: empty, or
    why the figures do not count."""

    query: str
    side: str
    rows: int
    whole_seconds: float
    net_seconds: float
    steady_seconds: float
    peak_bytes: int
    answer: str
    problem: str = ""
    cpu_seconds: float = 0.0

    @property
    def net_rate(self) -> float:
        """Input rows per second, the first time that the process runs the query."""
        return self.rows / self.net_seconds if self.net_seconds else 0.0

    @property
    def steady_rate(self) -> float:
        """Input rows per second of the batches alone, the second time."""
        return self.rows / self.steady_seconds if self.steady_seconds else 0.0


def main() -> None:
    given = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    figures = []
    for query in (OURS[name] for name in given.queries):
        expected: dict[int, answers.Checksum] = {}
        for side in [side for side in given.sides if side in MODULES or query.name in PEERS_QUERIES]:
            if query.name in AS_FLINK_WRITES and side != "penstock":
                continue
            for rows in _sizes(query, side, given.rows, given.native_rows):
                folder = data.connections(rows)
                if rows not in expected:
                    expected[rows] = answers.reference_checksum(folder, query, data.last_ms(rows))
                figure = measure(query, side, rows, expected[rows], given)
                console.print(_line(figure))
                figures.append(figure)
    before = records.last("queries")
    path = records.save("queries", given.memory, [asdict(figure) for figure in figures])
    console.print(table(figures, before))
    console.print(f"figures: {path.relative_to(ROOT)}")
    sys.exit(1 if any(figure.problem for figure in figures) else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench BENCH='...'", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the stream, a multiple of 100")
    parser.add_argument(
        "--native-rows", type=int, help="rows for sides of others; default: as each query and side says"
    )
    parser.add_argument("--queries", nargs="+", default=list(QUERIES), choices=OURS)
    parser.add_argument("--sides", nargs="+", default=list(MODULES), choices=[*MODULES, *PEERS])
    for peer in PEERS:
        parser.add_argument(
            f"--{peer}-python", default=sys.executable, help=f"interpreter of an environment with {peer}"
        )
    parser.add_argument("--memory", default="4g", help="heap of the JVM, the same for both sides")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for one side of one query")
    return parser.parse_args()


def _sizes(query: BenchQuery, side: str, rows: int, native_rows: int | None) -> list[int]:
    if side == "penstock":
        return [rows]
    return [min(rows, native_rows or min(query.native_rows or rows, SIDE_ROWS.get(side, rows)))]


def measure(query: BenchQuery, side: str, rows: int, expected: answers.Checksum, given: argparse.Namespace) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-", dir=data.FOLDER) as name:
        scratch = Path(name)
        out, report = scratch / "out", scratch / "report.json"
        options = {"data": data.connections(rows), "out": out, "scratch": scratch, "report": report}
        python = getattr(given, f"{side}_python") if side in PEERS else sys.executable
        command = [python, "-m", (MODULES | PEERS)[side], query.name, "--memory", given.memory]
        for option, value in options.items():
            command += [f"--{option}", str(value)]
        outcome = processes.run(command, ROOT, scratch / "log", given.timeout)
        if outcome.code or not report.exists():
            reason = "too slow" if outcome.code == processes.KILLED else outcome.output[-2000:] or "no output"
            return Figure(query.name, side, rows, outcome.seconds, 0.0, 0.0, outcome.peak_bytes, "", reason)
        answer = answers.result_checksum(out, query, data.last_ms(rows))
        problem = problem_of(answer, expected)
        told = json.loads(report.read_text())
        times = (outcome.seconds, told["seconds"], told["steady"])
        return Figure(query.name, side, rows, *times, outcome.peak_bytes, str(answer), problem, outcome.cpu_seconds)


def problem_of(answer: answers.Checksum, expected: answers.Checksum) -> str:
    """Return why an answer does not count, empty where it is the expected one and has rows."""
    if not expected.rows:
        return "too few rows: no row of the answer is before the end of the stream, so nothing was compared"
    return "" if answer == expected else f"wrong answer: {answer}, expected {expected}"


def _line(figure: Figure) -> str:
    if figure.problem:
        return f"{figure.query} {figure.side}: {figure.problem}"
    rates = f"{figure.net_rate:,.0f} rows/s net, {figure.steady_rate:,.0f} steady"
    return f"{figure.query} {figure.side}: {figure.rows:,} rows, {rates}, {figure.answer}"


def table(figures: list[Figure], before: list[dict[str, Any]]) -> Table:
    """before: figures of earlier runs; the last of the same query, side and size is what `net, then` compares with."""
    shown = Table(title="rows per second of input; memory of the whole process tree")
    shown.add_column("query")
    for heading in ("side", "rows", "net", "steady", "cpu s", "peak MB", "ratio net", "ratio steady", "net, then"):
        shown.add_column(heading, justify="right")
    for figure, ratios in _with_ratios(figures):
        rates = ("-", "-") if figure.problem else (f"{figure.net_rate:,.0f}", f"{figure.steady_rate:,.0f}")
        title = f"{figure.query} {QUERIES[figure.query].title}"
        mark = " FAILED" if figure.problem else ""
        shown.add_row(
            title,
            figure.side + mark,
            f"{figure.rows:,}",
            *rates,
            f"{figure.cpu_seconds:,.1f}",
            f"{figure.peak_bytes / 2**20:,.0f}",
            *ratios,
            _then(figure, before),
        )
    return shown


def _then(figure: Figure, before: list[dict[str, Any]]) -> str:
    # Of what earlier versions wrote down, only what is shown is read.
    key = (figure.query, figure.side, figure.rows)
    alike = [f for f in before if (f["query"], f["side"], f["rows"]) == key]
    if not alike or alike[-1]["problem"] or not alike[-1]["net_seconds"]:
        return ""
    return f"{alike[-1]['rows'] / alike[-1]['net_seconds']:,.0f}"


def _with_ratios(figures: list[Figure]) -> Iterator[tuple[Figure, tuple[str, str]]]:
    """Every figure; those of other sides with Penstock's rates over theirs."""
    ours = {f.query: f for f in figures if f.side == "penstock" and not f.problem}
    for figure in figures:
        mine = ours.get(figure.query)
        if figure.side == "penstock" or figure.problem or mine is None:
            yield figure, ("", "")
            continue
        pairs = ((mine.net_rate, figure.net_rate), (mine.steady_rate, figure.steady_rate))
        net, steady = (f"{a / b:.1f}" if b else "" for a, b in pairs)
        yield figure, (net, steady)


if __name__ == "__main__":
    main()
