"""Rounds that concern a part of the queries: the steps of the others neither run nor are written again, and the
answers are those of the law, whatever process goes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import InlineRun, cold

from penstock.connectors.sinks.files import read_result
from penstock.language.scripts import bind_script
from penstock.physical.operators.aggregates.aggregate import Aggregation
from penstock.runtime.spark.worker import stage
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

FILES = 6
QUERIES = {
    "sums": "SELECT k, SUM(x) AS total FROM {0} [RANGE 7 SECONDS] GROUP BY k",
    "short": "SELECT k, COUNT(*) AS n FROM {0} [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "long": "SELECT k, SUM(x) AS total FROM {0} [RANGE 12 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "kept": "SELECT DISTINCT x FROM {0} [ROWS 5]",
}
BOTH = "SELECT s.x, z.x AS y FROM s [RANGE 3 SECONDS], z [RANGE 5 SECONDS] WHERE s.k = z.k"


def rows(name: str) -> pa.Table:
    ticks = [3 * i + j for i in range(FILES) for j in range(3)]
    shift = 1 if name == "s" else 5
    return pa.table(
        {
            "ts": pa.array(ticks, pa.int64()),
            "k": pa.array([t * shift % 2 for t in ticks], pa.int32()),
            "x": pa.array([t * 7 % 5 + shift for t in ticks], pa.int64()),
        }
    )


def script(tmp: Path, names: list[str]) -> str:
    text = "SET max_batch_bytes = 1; SET shards = 2;"
    for name in "sz":
        text += (
            f"CREATE STREAM {name} (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / name}', format 'parquet') "
            "TIMESTAMP BY ts UNIT SECOND;"
        )
    for name in names:
        query = BOTH if name == "both" else QUERIES[name[2:]].format(name[0])
        text += f"CREATE QUERY {name} INTO FILES (path '{tmp / 'out' / name}', format 'parquet') AS {query};"
    return text


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in "sz":
        (tmp_path / name).mkdir()
        for i in range(FILES):
            pq.write_table(rows(name).slice(3 * i, 3), tmp_path / name / f"part-{i:04d}.parquet")
    cold()
    return tmp_path


ALL = ["both", *(f"{source}_{name}" for source in "sz" for name in QUERIES)]


def check(tmp: Path, text: str) -> None:
    script = bind_script(text)
    for query in script.queries:
        answer = read_result(tmp / "out" / query.name)
        assert_same(query, answer, run_oracle(query, {"s": rows("s"), "z": rows("z")}))


@pytest.mark.spread(2)
@pytest.mark.parametrize("every", [0, 1, 2, 5])
def test_answers_are_those_of_the_law_whoever_goes_on(place: Path, every: int) -> None:
    """every: the number of rounds after which another process continues, 0 for never."""
    text = script(place, ALL)
    run = InlineRun(text, place / "checkpoint")
    number = 0
    while run.pending() and not run.ended:
        run.go(1)
        number += 1
        if every and number % every == 0:
            cold()
    run.rounds.stop()
    check(place, text)


def test_a_step_without_input_neither_runs_nor_is_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    advance = Aggregation.advance

    def counted(self: Aggregation, moment: object) -> object:
        ran.append(self)
        return advance(self, moment)  # type: ignore[arg-type]

    monkeypatch.setattr(Aggregation, "advance", counted)
    run = InlineRun(script(place, ["s_sums", "z_sums"]), place / "checkpoint").go(2)
    written: list[set[str]] = []
    save = stage._stored_step

    def saved(key: str, *others: object) -> object:
        written[-1].add(key)
        return save(key, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(stage, "_stored_step", saved)
    for _ in range(6):
        ran.clear()
        written.append(set())
        run.go(1)
        # One aggregate in each of two shards.
        assert len(ran) == len(set(map(id, ran))) == 2
    run.rounds.stop()
    assert written[0] and written[1] and not written[0] & written[1]
    assert written[0] == written[2] == written[4] and written[1] == written[3] == written[5]
