"""Rows that a sink cannot hold: dead letters of their query, counted once, in a run, a backfill and in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold, write_files

from penstock.algebra.nodes.query import Query
from penstock.connectors.contract import Rejected, Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sinks import open_sink
from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.expressions.values.shown import shown_row
from penstock.language.scripts import bind_script
from penstock.runtime.local.inprocess import answer_here
from penstock.runtime.monitoring.progress import QueryCounts
from penstock.runtime.spark.output.totals import RunTotals

_LIMIT = 4
_KIND = "number in column x is too large"


def open_bounded_sink(query: Query) -> Sink:
    """Return the sink of `query`, which refuses rows whose x is larger than `_LIMIT`."""
    sink: Any = open_sink(query)
    write = sink.write_pieces

    def bounded(batch: int, pieces: Iterator[pa.Table]) -> None:
        table = pa.concat_tables(pieces)
        large = pc.greater(table["x"], _LIMIT)
        positions = pc.indices_nonzero(large).to_pylist()
        reasons = [f"number '{table['x'][p]}' in column x is too large" for p in positions]
        found = [
            Rejected(sink.place, None, shown_row(table, p), why) for p, why in zip(positions, reasons, strict=True)
        ]
        if found:
            sink.refuse(batch, found)
        write(batch, iter([table.filter(pc.invert(large))]))

    sink.write_pieces = bounded
    result: Sink = sink
    return result


@pytest.fixture(autouse=True)
def bounded_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("spark.output.recorded_sink", "local.inprocess"):
        monkeypatch.setattr(f"penstock.runtime.{module}.open_sink", open_bounded_sink)
    cold()


def script(tmp: Path, *names: str, on_error: str = "DEAD LETTER") -> str:
    text = f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND ON ERROR {on_error};"""
    for name in names:
        text += f"\nCREATE QUERY {name} INTO FILES (path '{tmp / name}', format 'parquet') AS SELECT k, x FROM S;"
    return text


def values(tmp: Path) -> list[int]:
    """The x of the whole input."""
    files = sorted((tmp / "data").glob("*.parquet"))
    found: list[int] = pa.concat_tables([pq.read_table(file) for file in files])["x"].to_pylist()
    return found


def counts(run: InlineRun) -> dict[str, QueryCounts]:
    return RunTotals(run.folder).progress(run.job.plan, {}, run.sinks, {}, {}).queries


def refused(run: InlineRun, name: str) -> int:
    """How many letters there are of a query; each holds the sink, the row and the reason."""
    letters = list(DeadLetters(run.folder.dead_letters).read(name))
    for letter in letters:
        assert letter.path == run.sinks[name].place and '"x": ' in letter.record
        assert letter.reason.startswith("number '")
    return len(letters)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_backfill_keeps_and_counts_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    write_files(tmp_path / "data", range(6))
    expected = [x for x in values(tmp_path) if x > _LIMIT]
    fitting = sorted(x for x in values(tmp_path) if x <= _LIMIT)
    assert expected and fitting
    InlineRun(script(tmp_path, "old"), tmp_path / "checkpoint").run(3)
    cold()
    if interrupted:

        def crash(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
            broken.setattr(RunTotals, "backfilled", crash)
            InlineRun(script(tmp_path, "old", "new"), tmp_path / "checkpoint", backfilled=True)
        cold()
    run = InlineRun(script(tmp_path, "old", "new"), tmp_path / "checkpoint", backfilled=True)
    past = counts(run)["new"].refused
    assert past == {_KIND: refused(run, "new")} == counts(run)["old"].refused
    run.run()
    assert refused(run, "new") == refused(run, "old") == len(expected)
    assert {name: found.refused for name, found in counts(run).items()} == {
        name: {_KIND: len(expected)} for name in ("old", "new")
    }
    for name in ("old", "new"):
        assert sorted(read_result(str(tmp_path / name))["x"].to_pylist()) == fitting


def test_a_run_over_a_source_that_fails_ends(tmp_path: Path) -> None:
    write_files(tmp_path / "data", range(2))
    with pytest.raises(PenstockError, match="a row cannot be written") as failed:
        InlineRun(script(tmp_path, "q", on_error="FAIL"), tmp_path / "checkpoint").run()
    assert failed.value.code == "P0502"


@pytest.mark.parametrize("on_error", ["DEAD LETTER", "SKIP"])
def test_answers_in_this_process_count_them(tmp_path: Path, on_error: str) -> None:
    write_files(tmp_path / "data", range(2))
    expected = [x for x in values(tmp_path) if x > _LIMIT]
    queries = bind_script(script(tmp_path, "q", "p", on_error=on_error)).queries
    result = answer_here(queries)
    assert result.rejected == {name: {_KIND: len(expected)} for name in ("q", "p")}
    assert result.tables["q"].num_rows == len(values(tmp_path))
    assert read_result(str(tmp_path / "q")).num_rows == len(values(tmp_path)) - len(expected)


def test_answers_in_this_process_fail_of_them(tmp_path: Path) -> None:
    write_files(tmp_path / "data", range(2))
    with pytest.raises(
        PenstockError, match=r"query q: a row cannot be written to .*: number '\d+' in column x"
    ) as failed:
        answer_here(bind_script(script(tmp_path, "q", on_error="FAIL")).queries)
    assert failed.value.code == "P0502" and '"x": ' in failed.value.message
