"""`make demo`: continuous queries over the flights of 2013 on Spark, with the first rows of every result.
`make demo-animals`: the same with the animal sensors and the queries of CSQL's paper."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import animals
import prepare
import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from penstock.algebra.nodes.query import Query
from penstock.cli.running import run_script
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.settings import Settings

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Demo:
    """fill: makes the data in a folder; batch: by itself the data is one batch, in smaller ones there is progress to
    see."""

    script: Path
    results: Path
    fill: Callable[[Path], None]
    over: str
    batch: str


DEMOS = {
    "flights": Demo(
        Path("examples/flights.cql"),
        Path("demo-results"),
        prepare.prepare,
        "336,776 flights and 26,115 weather reports",
        "1MB",
    ),
    "animals": Demo(
        Path("examples/animals.cql"),
        Path("demo-results/animals"),
        animals.prepare,
        "two hours of six animals' heart beats and body conditions",
        "100KB",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("demo", nargs="?", choices=DEMOS, default="flights")
    parser.add_argument("--rows", type=int, default=5, help="rows to show of each result")
    parser.add_argument("--checkpoint", type=Path, help="keep the run's state here, to resume it after an interruption")
    given = parser.parse_args()
    demo = DEMOS[given.demo]
    settings = Settings().with_value("max_batch_bytes", demo.batch)
    os.chdir(ROOT)
    console = Console(width=min(120, Console().width) if sys.stdout.isatty() else 120, highlight=False)
    began = time.perf_counter()
    try:
        demo.fill(demo.results / "data")
        text = demo.script.read_text(encoding="utf-8")
        queries = bind_script(text, file=str(demo.script)).queries
        console.print(f"{len(queries)} continuous queries over {demo.over}:\n")
        for query in queries:
            console.print(Syntax(query.text.strip(), "sql", background_color="default"))
            console.print()
        code = run_script(
            text, str(demo.script), settings, given.checkpoint, drain=False, master=None, overwrite=not given.checkpoint
        )
    except PenstockError as error:
        print(error.render(), file=sys.stderr)
        return 1
    if code == 0:
        for query in queries:
            show(console, query, given.rows)
        console.print(f"The whole results lie in {demo.results}/<query>/; the script is {demo.script}.")
        console.print(f"{time.perf_counter() - began:.0f} seconds in all.")
    return code


def show(console: Console, query: Query, rows: int) -> None:
    """The first rows of a result, read from its files as anybody would."""
    folder = Path(query.sink.option("path"))
    options = pa.csv.ConvertOptions(column_types=dict.fromkeys(query.output_names, pa.string()))
    parts = [pa.csv.read_csv(part, convert_options=options) for part in sorted(folder.glob("part-*.csv"))]
    result = pa.concat_tables(parts) if parts else pa.table({name: [] for name in query.output_names})
    table = Table(title=f"{query.name}: {result.num_rows:,} rows", title_justify="left", title_style="bold")
    for name in query.output_names:
        table.add_column(name)
    for row in result.slice(0, rows).to_pylist():
        table.add_row(*(str(value) for value in row.values()))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
