"""What tests of sums share: queries over one stream of doubles say what the oracle says, however they are run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.language.scripts import bind_script
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle


def bound(declared: str, texts: Mapping[str, str]) -> Sequence[Query]:
    """Return queries by their names, over what is declared."""
    return bind_script(declared + "".join(f"CREATE QUERY `{name}` AS {text};" for name, text in texts.items())).queries


def spread_over(values: Sequence[float | None], keys: int, pace: int) -> pa.Table:
    """Return rows (ts, k, x) with these values in turn for so many keys, of which each has one every `pace` seconds."""
    numbers = range(len(values))
    return pa.table(
        {
            "ts": pa.array([i * pace // keys for i in numbers], pa.int32()),
            "k": pa.array([i % keys for i in numbers], pa.int32()),
            "x": pa.array(values, pa.float64()),
        }
    )


def assert_as_the_oracle(
    queries: Sequence[Query], rows: pa.Table, runs: Sequence[CaseRun], tolerance: float = 1e-9
) -> None:
    """Assert that all queries over the stream S answer as the oracle does, however they are run."""
    inputs = {"S": rows}
    answers = {query.name: run_oracle(query, inputs) for query in queries}
    for run in runs:
        found = run.answer(queries, inputs, False, None)
        for query in queries:
            assert_same(query, found.tables[query.name], answers[query.name], tolerance)
