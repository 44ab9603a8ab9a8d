"""The content of a relation whose rows are posted to a server, with which queries begin NOW: that of its files."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from inline_run import InlineRun

from penstock.algebra.nodes.scans import Source, over_sources
from penstock.connectors.sinks.files import read_result
from penstock.connectors.sources.posted_files import append
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script

POSTED = {
    "timed": "CREATE RELATION P (ts BIGINT, op STRING, k BIGINT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND "
    "OPERATION BY op;",
    "clocked": "CREATE RELATION P (op STRING, k BIGINT) FROM MEMORY () SYSTEM TIME OPERATION BY op;",
}
POSTS = [[("+", 1), ("+", 2)], [("-", 1), ("+", 3)], [("+", 4)], [("-", 3)], [("+", 5)], [("-", 6)]]


def posted_run(tmp: Path, kind: str) -> InlineRun:
    """A run that reads a posted relation, up to its last post but one."""
    for number, rows in enumerate(POSTS, 1):
        columns = {"ts": pa.array([number] * len(rows)), "op": [op for op, _ in rows], "k": [k for _, k in rows]}
        append(tmp / "posts", pa.table(columns).drop_columns(["ts"] if kind == "clocked" else []), number)
    source = posted(tmp, bind_script(POSTED[kind]).catalog.sources["p"])
    text = "SET max_batch_bytes = 1; SET shards = 2;"
    return InlineRun(text, tmp / "checkpoint", declared={"P": source}, standing=True, queries=()).go(len(POSTS))


def posted(tmp: Path, source: Source) -> Source:
    return replace(source, connector="POSTED", options=(("spool", str(tmp / "posts")), ("source", "1")))


def content_of_posts(tmp: Path, kind: str, run: InlineRun) -> Counter[int]:
    """The content with which a query begins NOW."""
    query = f"CREATE QUERY q INTO FILES (path '{tmp / 'q'}', format 'parquet') AS SELECT k FROM P;"
    (bound,) = bind_script(POSTED[kind] + query).queries
    over = replace(
        bound, root=over_sources(bound.root, {"P": posted(tmp, bind_script(POSTED[kind]).catalog.sources["p"])})
    )
    run.change("SET max_batch_bytes = 1; SET shards = 2;", queries=(over,))
    run.rounds.stop()
    rows = read_result(str(tmp / "q")).to_pylist()
    assert {row["op"] for row in rows} <= {"+"}
    return Counter(row["k"] for row in rows)


@pytest.mark.parametrize("kind", POSTED)
def test_a_posted_relation_begins_with_its_content(tmp_path: Path, kind: str) -> None:
    run = posted_run(tmp_path, kind)
    assert content_of_posts(tmp_path, kind, run) == Counter([2, 4, 5])


def test_a_post_of_which_a_part_has_been_read(tmp_path: Path) -> None:
    """Its other rows come later, and once."""
    parts = [pa.table({"ts": [tick], "op": ["+"], "k": [tick]}) for tick in (1, 2, 3, 4)]
    append(tmp_path / "posts", pa.concat_tables(parts[:1]), 1)
    append(tmp_path / "posts", pa.concat_tables(parts[1:]), 2)
    source = posted(tmp_path, bind_script(POSTED["timed"]).catalog.sources["p"])
    text = "SET max_batch_bytes = 1; SET shards = 2;"
    run = InlineRun(text, tmp_path / "checkpoint", declared={"P": source}, standing=True, queries=()).go(1)
    into = f"INTO FILES (path '{tmp_path / 'q'}', format 'parquet')"
    (bound,) = bind_script(f"{POSTED['timed']} CREATE QUERY q {into} AS SELECT k FROM P;").queries
    run.change(text, queries=(replace(bound, root=over_sources(bound.root, {"P": source})),)).go(2)
    run.rounds.stop()
    assert sorted(row["k"] for row in read_result(str(tmp_path / "q")).to_pylist()) == [1, 2, 3]


@pytest.mark.parametrize(("kind", "possible"), [("timed", True), ("clocked", False)])
def test_rows_that_were_posted_before_the_rounds_were_recorded(tmp_path: Path, kind: str, possible: bool) -> None:
    run = posted_run(tmp_path, kind)
    shutil.rmtree(tmp_path / "checkpoint" / "penstock" / "history")
    if possible:
        assert content_of_posts(tmp_path, kind, run) == Counter([2, 4, 5])
        return
    with pytest.raises(PenstockError) as refused:
        content_of_posts(tmp_path, kind, run)
    assert refused.value.code == "P0703" and "the content of P" in refused.value.message
