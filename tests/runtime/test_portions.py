"""Answers in portions: however they are divided over rounds, and wherever a process dies between two of these, together
they are what one round would have emitted.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import CRASHES, InlineRun, cold

from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.operators.joins import growth, join, multi_join, partner_counts
from penstock.runtime.local.runtime import run_local
from penstock.runtime.result_limits import ResultLimits, memory_of_machine

STREAM = "CREATE STREAM s (ts BIGINT, k BIGINT, v BIGINT, x STRING) FROM {source} TIMESTAMP BY ts UNIT MILLISECOND;"
WINDOW = "s [RANGE 40 MILLISECONDS SLIDE 1 MILLISECOND]"
QUERIES = {
    "counted": f"RSTREAM(SELECT COUNT(*) AS n FROM {WINDOW})",
    "summed": f"RSTREAM(SELECT k, SUM(v) AS n FROM {WINDOW} GROUP BY k)",
    "summed_too": "RSTREAM(SELECT k, SUM(v) AS n FROM s [RANGE 30 MILLISECONDS SLIDE 2 MILLISECONDS] GROUP BY k)",
    "largest": "RSTREAM(SELECT k, MAX(v) AS n FROM s [RANGE 40 MILLISECONDS SLIDE 3 MILLISECONDS] GROUP BY k)",
    "rows": f"RSTREAM(SELECT * FROM {WINDOW})",
    "at_changes": "RSTREAM(SELECT * FROM s [RANGE 40 MILLISECONDS])",
    "listed": f"RSTREAM(SELECT ARRAY_AGG(x) AS n FROM {WINDOW})",
    "different": f"RSTREAM(SELECT DISTINCT k FROM {WINDOW})",
    "united": f"RSTREAM(SELECT v FROM {WINDOW}) UNION ALL RSTREAM(SELECT k FROM {WINDOW})",
    "nested": f"SELECT k, COUNT(*) AS c FROM (RSTREAM(SELECT k, v FROM {WINDOW})) [RANGE 5 MILLISECONDS] GROUP BY k",
    "joined": "RSTREAM(SELECT a.v, b.v AS w FROM s [RANGE 20 MILLISECONDS] AS a, "
    "s [RANGE 20 MILLISECONDS SLIDE 5 MILLISECONDS] AS b WHERE a.k = b.k)",
    "every_pair": "SELECT a.v, b.v AS w FROM s [RANGE 30 MILLISECONDS] AS a, s [RANGE 20 MILLISECONDS] AS b",
    "some_pairs": "SELECT ISTREAM(a.v, b.x) FROM s [RANGE 50 MILLISECONDS] AS a, s [RANGE 20 MILLISECONDS] AS b"
    " WHERE a.v + b.v > 9",
    "counted_pairs": "SELECT a.v, COUNT(*) AS n FROM s [RANGE 90 MILLISECONDS] AS a, s [ROWS 3] AS b GROUP BY a.v",
    "by_key": "SELECT a.v, b.v AS w FROM s [RANGE 30 MILLISECONDS] AS a, s [RANGE 1 HOUR] AS b WHERE a.k = b.k",
    "by_key_and_rows": "SELECT a.v, b.v AS w FROM s [RANGE 90 MILLISECONDS] AS a, s [ROWS 9] AS b WHERE a.k = b.k",
    "lists": "SELECT k, ARRAY_AGG(v) AS n FROM s [RANGE 60 MILLISECONDS] GROUP BY k",
    "all_texts": "SELECT STRING_AGG(x, ',') AS n FROM s",
    "shorter_lists": "SELECT k, ARRAY_AGG(v) AS n FROM s [RANGE 30 MILLISECONDS] GROUP BY k",
    "pairs": "RSTREAM(SELECT a.v, b.v AS w FROM s [RANGE 9 MILLISECONDS] AS a, s [NOW] AS b)",
}


def random_rows(draw: random.Random) -> pa.Table:
    ts = sorted(draw.randint(0, 400) for _ in range(draw.randint(0, 20)))
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "k": pa.array([draw.randint(0, 3) for _ in ts], pa.int64()),
            "v": pa.array([draw.randint(0, 9) for _ in ts], pa.int64()),
            "x": pa.array(["x" * draw.randint(0, 50) for _ in ts], pa.string()),
        }
    )


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


@pytest.mark.parametrize("seed", range(12))
def test_portions_are_the_whole(seed: int) -> None:
    """In this process: random sizes of portions, cuts of the input, shards, and restores between rounds."""
    draw = random.Random(seed)
    script = STREAM.format(source="MEMORY ()") + "".join(f"CREATE QUERY {n} AS {q};" for n, q in QUERIES.items())
    queries, inputs = bind_script(script).queries, {"s": random_rows(draw)}
    shards, drain = draw.randint(1, 3), draw.random() < 0.5
    whole = run_local(queries, inputs, shards=shards, drain=drain)
    rounds: list[object] = []
    divided = run_local(
        queries,
        inputs,
        shards=shards,
        drain=drain,
        seed=draw.randint(0, 999),
        reload=draw.random() < 0.5,
        max_answers=draw.choice([1, 500, 5_000, 50_000]),
        watcher=rounds.append,
    )
    for name, table in whole.tables.items():
        found = divided.tables[name]
        assert found.column("ts").to_pylist() == sorted(found.column("ts").to_pylist()), name
        assert rows_of(found) == rows_of(table), name
    assert divided.final == whole.final


def test_a_portion_bounds_a_round() -> None:
    """One row an hour before the others is at 3.6 million boundaries. No round emits more than its portion, and one row
    at least."""
    script = STREAM.format(source="MEMORY ()") + (
        "CREATE QUERY fine AS RSTREAM(SELECT v, x FROM s [RANGE 1 HOUR SLIDE 1 MILLISECOND]);"
        "CREATE QUERY plain AS SELECT v FROM s WHERE v > 0;"
    )
    rows = pa.table({"ts": [0, 50_000], "k": [1, 1], "v": [1, 2], "x": ["long" * 100, None]})
    emitted: list[int] = []
    result = run_local(
        bind_script(script).queries,
        {"s": rows},
        max_answers=2_000_000,
        watcher=lambda metrics: emitted.append(metrics.queries["fine"].rows),
    )
    assert result.tables["fine"].num_rows == 50_000 + 2 and result.tables["plain"].num_rows == 2
    steps = [after - before for before, after in zip([0, *emitted], emitted, strict=False)]
    # A row has about 420 bytes, and each query half of what a round may emit; the first rows show how long they are.
    assert len(emitted) > 15 and max(steps) < 1_000 + 8_000


def test_lists_without_bound_are_emitted_in_portions() -> None:
    """Each of 600 rows lets the list of all be emitted again."""
    script = STREAM.format(source="MEMORY ()") + "CREATE QUERY all_values AS SELECT ARRAY_AGG(v) AS n FROM s;"
    count = 600
    rows = pa.table({"ts": range(count), "k": [1] * count, "v": range(count), "x": ["x"] * count})
    emitted: list[int] = []
    result = run_local(
        bind_script(script).queries,
        {"s": rows},
        max_answers=100_000,
        batch_rows=count,
        watcher=lambda metrics: emitted.append(metrics.queries["all_values"].rows),
    )
    lists = [row["n"] for row in result.tables["all_values"].to_pylist() if row["op"] == "+"]
    assert lists[1:] == [list(range(n)) for n in range(2, count + 1)]
    assert len(emitted) > 5


def test_pairs_by_a_key_are_emitted_in_portions() -> None:
    """No row of another key joins, and no round emits far more than its portion."""
    script = STREAM.format(source="MEMORY ()") + (
        "CREATE QUERY pairs AS SELECT a.v, b.v AS w FROM s [RANGE 1 DAY] AS a, s [ROWS 100000] AS b WHERE a.k = b.k;"
    )
    count = 2_000
    keys = [0] * 1_000 + list(range(1_000))
    rows = pa.table({"ts": range(count), "k": keys, "v": range(count), "x": ["x"] * count})
    emitted: list[int] = []
    result = run_local(
        bind_script(script).queries,
        {"s": rows},
        max_answers=4_000_000,
        batch_rows=500,
        watcher=lambda metrics: emitted.append(metrics.queries["pairs"].rows),
    )
    assert result.tables["pairs"].num_rows == emitted[-1] == 1_001**2 + 999
    steps = [after - before for before, after in zip([0, *emitted], emitted, strict=False)]
    # A pair has 24 bytes.
    assert max(steps) < 2 * 4_000_000 / 24


SCRIPT = (
    "SET shards = 3; SET max_batch_answers = '{most}'; SET max_batch_bytes = '1 kB';"
    + STREAM.format(source="FILES (path '{folder}/in', format 'parquet')")
    + "".join(
        f"CREATE QUERY {name} INTO FILES (path '{{folder}}/{{place}}/{name}', format 'csv') AS {QUERIES[name]};"
        for name in (
            "counted",
            "summed",
            "rows",
            "at_changes",
            "united",
            "nested",
            "every_pair",
            "counted_pairs",
            "by_key_and_rows",
            "lists",
        )
    )
)


def written(folder: Path, place: str, most: str, crash: str | None = None) -> tuple[dict[str, bytes], int]:
    """Run a script over all its input, with a death in every third round where `crash` says at which point; return the
    files of its results by name, and how many batches there were."""
    cold()
    script = SCRIPT.format(folder=folder, place=place, most=most)
    for _ in range(200):
        run = InlineRun(script, folder / place / "checkpoint", live=False)
        run.run(2, crash) if crash is not None else run.run()
        cold()
        if run.ended:
            files = sorted((folder / place).glob("*/*.csv"))
            return {str(file.relative_to(folder / place)): file.read_bytes() for file in files}, run.batch
    raise AssertionError("it does not end")


def lines(files: dict[str, bytes]) -> dict[str, list[str]]:
    """Return the rows by query, in the order of the files."""
    found: dict[str, list[str]] = {}
    for name in sorted(files):
        found.setdefault(name.split("/")[0], []).extend(files[name].decode().splitlines()[1:])
    return found


def test_a_death_between_two_portions(tmp_path: Path) -> None:
    """Files have the same bytes wherever the process dies, and together the rows of an answer that is not divided, in
    the order of time."""
    draw = random.Random(5)
    rows = random_rows(draw)
    while rows.num_rows < 8:
        rows = random_rows(draw)
    (tmp_path / "in").mkdir()
    for number in range(3):
        part = rows.slice(number * rows.num_rows // 3, rows.num_rows // 3 + 1)
        pq.write_table(part, tmp_path / f"in/{number}.parquet")
    whole, few = written(tmp_path, "whole", "1 GB")
    divided, many = written(tmp_path, "divided", "40 kB")
    assert many > few + 5
    for query, found in lines(divided).items():
        assert Counter(found) == Counter(lines(whole)[query]), query
        times = [int(line.split(",")[0]) for line in found]
        assert times == sorted(times), query
    for crash in (*CRASHES, "marked"):
        again, _ = written(tmp_path, crash, "40 kB", crash)
        assert again == divided, crash


@pytest.mark.parametrize("isolated", [True, False])
def test_a_query_with_more_answers_than_its_limit(tmp_path: Path, isolated: bool) -> None:
    """The pairs of one instant are not divided: the query fails alone, and nothing of its answer is delivered."""
    (tmp_path / "in").mkdir()
    count = 300
    rows = {"ts": [1] * count + [2], "k": [0] * (count + 1), "v": list(range(count + 1)), "x": ["x"] * (count + 1)}
    pq.write_table(pa.table(rows), tmp_path / "in/0.parquet")
    script = STREAM.format(source=f"FILES (path '{tmp_path}/in', format 'parquet')") + (
        f"CREATE QUERY pairs INTO FILES (path '{tmp_path}/pairs', format 'csv') AS"
        " SELECT a.v, b.v AS w FROM s [RANGE 1 DAY] AS a, s [RANGE 1 DAY] AS b;"
        f"CREATE QUERY plain INTO FILES (path '{tmp_path}/plain', format 'csv') AS SELECT v FROM s WHERE v >= 0;"
    )
    options = {"live": True, "pause_failed": True} if isolated else {}
    run = InlineRun(script, tmp_path / "checkpoint", result_limits={"pairs": 100_000}, **options)
    if not isolated:
        with pytest.raises(PenstockError, match=r"P0634.*query pairs: .* may have 100,000"):
            run.run()
        run.rounds.stop()
        return
    run.run()
    assert {name: failure.code for name, failure in run.failed.items()} == {"pairs": "P0634"} or run.ended
    assert (tmp_path / "plain").exists() and not list((tmp_path / "pairs").glob("*.csv"))
    delivered = run.folder.delivered().failed or run.failed
    assert [failure.code for failure in delivered.values()] == ["P0634"]
    texts = [file.read_text() for file in (tmp_path / "plain").glob("*.csv")]
    assert sum(len(text.splitlines()) - 1 for text in texts) == count + 1


def test_an_inner_operator_that_emits_more_than_its_limit(tmp_path: Path) -> None:
    """The pairs are counted, so that the answer is small; what the join hands on is not."""
    (tmp_path / "in").mkdir()
    rows = {"ts": [1] * 300 + [2], "k": [0] * 301, "v": list(range(301)), "x": ["x"] * 301}
    pq.write_table(pa.table(rows), tmp_path / "in/0.parquet")
    script = "SET result_limit = '500 kB'; SET shards = 1;" + STREAM.format(
        source=f"FILES (path '{tmp_path}/in', format 'parquet')"
    )
    script += (
        f"CREATE QUERY pairs INTO FILES (path '{tmp_path}/pairs', format 'csv') AS"
        " SELECT a.v, COUNT(*) AS n FROM s [RANGE 1 DAY] AS a, s [RANGE 1 DAY] AS b WHERE a.v + b.v > 3 GROUP BY a.v;"
        f"CREATE QUERY plain INTO FILES (path '{tmp_path}/plain', format 'csv') AS SELECT v FROM s WHERE v >= 0;"
    )
    run = InlineRun(script, tmp_path / "checkpoint", live=True, pause_failed=True).run()
    failed = run.folder.delivered().failed or run.failed
    assert {name: failure.code for name, failure in failed.items()} == {"pairs": "P0634"}
    assert "bytes in a round, and may 512,000 (result_limit)" in next(iter(failed.values())).message
    texts = [file.read_text() for file in (tmp_path / "plain").glob("*.csv")]
    assert sum(len(text.splitlines()) - 1 for text in texts) == 301


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a.v, b.v AS w FROM s [RANGE 1 DAY] AS a, s [RANGE 1 DAY] AS b WHERE a.k = b.k",
        "SELECT a.v, b.v AS w FROM s [RANGE 1 DAY] AS a, s [ROWS 1000] AS b WHERE a.k = b.k OR a.v = b.v",
        "SELECT a.v, b.v AS w FROM s [RANGE 1 DAY] AS a, s [ROWS 1000] AS b, s [RANGE 1 HOUR] AS c"
        " WHERE a.k = b.k AND b.k = c.k AND a.v < 3",
        "SELECT a.v, l.v AS w FROM s [RANGE 1 DAY] AS a, statics AS l WHERE a.k = l.k",
        "SELECT a.v, l.v AS w FROM s [RANGE 1 DAY] AS a LEFT JOIN statics AS l ON a.k = l.k",
        "SELECT a.v, l.v AS w FROM s [RANGE 1 DAY] AS a LEFT JOIN s [RANGE 1 DAY] AS l ON a.k = l.k",
        "SELECT COUNT(*) AS n FROM s [RANGE 1 DAY] AS a, s [RANGE 1 DAY] AS b WHERE a.k = b.k AND a.v + b.v > 3",
    ],
)
def test_a_join_stops_while_it_grows(tmp_path: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 90,000 pairs at one instant no more are formed than the limit allows, and a batch of probes beyond it."""
    for module in (join, multi_join, partner_counts):
        for name in ("PROBES_AT_ONCE", "PAIRS_AT_ONCE"):
            monkeypatch.setattr(module, name, 1_000, raising=False)
    formed: list[int] = []
    for module in (join, multi_join, partner_counts):
        monkeypatch.setattr(module, "account", lambda rows: (formed.append(len(rows)), growth.account(rows)))
    (tmp_path / "in").mkdir()
    rows = {"ts": [1] * 300 + [2], "k": [0] * 301, "v": list(range(301)), "x": ["x"] * 301}
    pq.write_table(pa.table(rows), tmp_path / "in/0.parquet")
    pq.write_table(pa.table({"k": [0] * 300, "v": list(range(300))}), tmp_path / "statics.parquet")
    script = "SET result_limit = '100 kB'; SET shards = 1;" + STREAM.format(
        source=f"FILES (path '{tmp_path}/in', format 'parquet')"
    )
    script += (
        "CREATE RELATION statics (k BIGINT, v BIGINT)"
        f" FROM FILES (path '{tmp_path}/statics.parquet', format 'parquet');"
        f"CREATE QUERY pairs INTO FILES (path '{tmp_path}/pairs', format 'csv') AS {query};"
        f"CREATE QUERY plain INTO FILES (path '{tmp_path}/plain', format 'csv') AS SELECT v FROM s WHERE v >= 0;"
    )
    run = InlineRun(script, tmp_path / "checkpoint", live=True, pause_failed=True).run()
    failed = run.folder.delivered().failed or run.failed
    assert {name: failure.code for name, failure in failed.items()} == {"pairs": "P0634"}
    assert "bytes in a round, and may 102,400 (result_limit)" in next(iter(failed.values())).message
    assert sum(formed) < 10_000
    texts = [file.read_text() for file in (tmp_path / "plain").glob("*.csv")]
    assert sum(len(text.splitlines()) - 1 for text in texts) == 301


def test_what_an_operator_emits_to_others_fits_in_memory() -> None:
    gigabyte = 2**30
    limits = ResultLimits(each=gigabyte)
    assert limits.between_operators(1, 100 * gigabyte) == (gigabyte, "result_limit")
    assert limits.between_operators(1, 5 * gigabyte) == (gigabyte // 2, "what fits in memory")
    assert ResultLimits().between_operators(1, gigabyte) == (None, "")
    assert 2**26 < memory_of_machine() < 2**50
