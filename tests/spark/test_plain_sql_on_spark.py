"""A sample of the plain SQL queries on Spark, in one job: some over static relations, some over ones with updates, some
over streams under windows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import Scan
from penstock.connectors.sinks.memory import collected
from penstock.runtime.spark.launch import launch
from penstock.runtime.spark.work import Work
from penstock.settings import Settings
from penstock.testing.compare import assert_same
from penstock.testing.oracle import Answer, run_oracle
from penstock.tree import Node, transform_up
from tests.plain_sql import FOLDER, Suite, Way, read
from tests.spark.test_cases_on_spark import written

#: Every so many queries one is taken, and the next way.
STRIDE = 29


def on_files(suite: Suite, way: Way, query: Query, folder: Path) -> Query:
    """The query over files; sources of two suites may be called alike, files and sources of a job may not."""
    inputs = suite.inputs(way)

    def from_files(node: Node) -> Node:
        if not isinstance(node, Scan):
            return node
        name = f"{suite.name}_{way.value}_{node.source.name}"
        place = folder / name
        if not place.exists():
            written(node.source, inputs[node.source.name], place, random.Random(name))
        options = (("path", str(place)), ("format", "arrow"))
        return replace(node, source=replace(node.source, name=name, connector="FILES", options=options))

    return replace(query, root=transform_up(query.root, from_files), sink=SinkSpec("MEMORY"))


def test_a_sample_of_plain_queries(spark: Any, tmp_path: Path) -> None:
    suites = [read(path) for path in sorted(FOLDER.glob("*.sqltest"))]
    sample = [(suite, asked) for suite in suites for asked in suite.queries][::STRIDE]
    ways = tuple(Way)
    queries: list[Query] = []
    expected: dict[str, Answer] = {}
    for number, (suite, asked) in enumerate(sample):
        way, name = ways[number % len(ways)], f"plain_{number}"
        query = replace(suite.bind(asked, way), name=name)
        expected[name] = run_oracle(query, suite.inputs(way), drain=True)
        queries.append(on_files(suite, way, query, tmp_path))
    run = launch(Work(tuple(queries), {}, {}, Settings({"shards": 2}), True, lambda: spark), None, False)
    assert run.wait(500)
    for query in queries:
        table: pa.Table = collected(query.name)
        assert_same(query, table, expected[query.name])
    assert sum(bool(answer.events) for answer in expected.values()) > len(queries) // 2
