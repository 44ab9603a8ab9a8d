"""A chosen part of the text cases on Spark: four shards, inputs cut at random, micro-batches of random size."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import SinkSpec
from penstock.algebra.nodes.scans import Scan, Source
from penstock.connectors.sinks.memory import collected
from penstock.language.scripts import bind_script
from penstock.runtime.spark.launch import launch
from penstock.runtime.spark.work import Work
from penstock.settings import Settings
from penstock.testing.cases import case_inputs, expected_events, parse_case
from penstock.testing.compare import assert_same
from penstock.tree import Node, transform_up

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"

#: What differs in what it asks of Spark: second keyed stages, one shard, order of arrival, dead letters of keyed
#: stages, static sides, negative tuples, several sources, state that comes and goes.
CASES = (
    "aggregates/conditions", "aggregates/count_distinct", "aggregates/covariance", "aggregates/filter",
    "aggregates/first_last", "aggregates/median",
    "aggregates/min_max", "aggregates/mode_and_top", "aggregates/string_agg", "aggregates/ungrouped_empty",
    "aggregates/value_by", "approximate/count_distinct", "approximate/hyperloglog", "approximate/percentile",
    "distinct/of_updates",
    "distinct/window", "frequency/animals", "frequency/one_substream", "frequency/relations",
    "frequent/blocks", "frequent/items", "joins/bands",
    "joins/computed_key_of_results", "joins/finitely_many_values",
    "joins/many_in_a_chain",
    "joins/many_updates", "joins/null_keys", "joins/null_safe_keys",
    "joins/static_relation", "joins/updated_relation", "nested/aggregate_of_aggregate", "nested/join_of_aggregates",
    "nested/view_stream", "order/first_rows", "order/of_updates", "relations/nonretroactive_rows",
    "promises/auctions_that_are_closed", "promises/checked_by_several_promises",
    "promises/checked_rows_are_dead_letters", "promises/children_meet_parents_at_once",
    "promises/closings_and_boundaries",
    "promises/groups_in_order", "promises/groups_that_are_closed", "promises/joins_of_closed_rows",
    "promises/orders_that_are_complete", "promises/punctuated_by", "promises/punctuated_rows_count",
    "promises/rows_that_are_closed",
    "relations/primary_key_operations", "relations/primary_key_replaces", "relations/unmatched_deletion",
    "sets/except_all", "sets/intersect", "sets/of_groups", "streams/restore", "streams/restore_came_back",
    "streams/rstream_join_updates", "subqueries/rows_not_in_nulls",
    "streams/wstream_range", "temporal/changes", "temporal/lasting", "temporal/sessions", "temporal/shedding",
    "temporal/until_next", "temporal/valid_windows",
    "time/heartbeat_by", "time/late", "time/since_epoch", "time/streams_apart", "time/timestamp_by_expression",
    "time/updates_by_expression", "windows/partition_rows",
    "windows/partition_rows_range", "windows/rows_slack", "windows/rows_slide", "windows/samples_of_two_streams",
    "windows/sliding",
)  # fmt: skip


def written(source: Source, table: pa.Table, folder: Path, draw: random.Random) -> Source:
    """The same source over files that hold its rows in order, cut at random."""
    folder.mkdir(parents=True)
    cuts = sorted(draw.randint(0, table.num_rows) for _ in range(draw.randint(0, 4)))
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, table.num_rows], strict=True)):
        with pa.ipc.new_file(str(folder / f"{number:03d}.arrow"), table.schema) as writer:
            writer.write_table(table.slice(start, stop - start))
    return replace(source, connector="FILES", options=(("path", str(folder)), ("format", "arrow")))


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", CASES)
def test_case(spark: Any, tmp_path: Path, name: str) -> None:
    draw = random.Random(zlib.crc32(name.encode()))
    case = parse_case((SCRIPTS / f"{name}.cqltest").read_text(encoding="utf-8"), name)
    bound = bind_script(case.script)
    inputs = case_inputs(case, bound)
    sources = {
        source.name: written(source, inputs[source.name], tmp_path / source.name, draw)
        for source in bound.catalog.sources.values()
    }

    def from_files(node: Node) -> Node:
        return replace(node, source=sources[node.source.name]) if isinstance(node, Scan) else node

    settings = Settings({"shards": 4, "max_batch_bytes": draw.choice((1, 700, 2000))})
    asked = {expect.query.lower() for expect in case.expects}
    for drain in sorted({expect.drain for expect in case.expects}):
        queries = tuple(
            replace(query, root=transform_up(query.root, from_files), sink=SinkSpec("MEMORY"))
            for query in bound.queries
            if query.name.lower() in asked
        )
        run = launch(Work(queries, {}, {}, settings, drain, lambda: spark), None, False)
        assert run.wait(300)
        told = run.progress()
        for expect in (e for e in case.expects if e.drain == drain):
            (query,) = (q for q in queries if q.name.lower() == expect.query.lower())
            assert_same(query, collected(query.name), expected_events(query, expect))
        assert {source: told.sources[source].late for source in case.late} == case.late
        for source, reasons in case.rejected.items():
            found = told.sources[source].reasons
            assert {reason: found.get(reason, 0) for reason in reasons} == reasons
