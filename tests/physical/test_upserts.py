"""Relations told by upserts: a `+` replaces the row of its key, a `-` of a key that is not there says nothing."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.algebra import RelationScan, Source
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.runtime.local.runtime import run_local
from penstock.testing.definitions.relations import content
from penstock.types import Field, Schema, TimeDomain, Unit

COLUMNS = Schema(
    tuple(
        Field(n, t)
        for n, t in zip(("at", "op", "k", "v"), (pa.int64(), pa.string(), pa.int32(), pa.int32()), strict=True)
    )
)
SOURCE = Source(
    "r", False, COLUMNS, "MEMORY", (), 0, TimeDomain(Unit.SECOND, False), operation=1, primary_key=(2,), upserts=True
)


@pytest.mark.parametrize("seed", range(20))
def test_upserts_leave_what_the_oracle_says(seed: int) -> None:
    draw = random.Random(seed)
    ats = sorted(draw.randrange(12) for _ in range(25))
    rows = [(at, draw.choice("++-"), draw.randrange(4), draw.randrange(3)) for at in ats]
    schema = pa.schema([(f.name, f.type) for f in COLUMNS])
    table = pa.table(
        [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), schema.types, strict=True)], schema=schema
    )
    query = Query("q", RelationScan(SOURCE, (2, 3)), SinkSpec("MEMORY"))
    result = run_local([query], {"r": table}, shards=draw.choice([1, 3]), seed=seed, reload=draw.random() < 0.5)
    assert result.rejected == {}
    changes = result.tables["q"].to_pylist()
    for tau in range(12):
        held, reasons = content(SOURCE, [row for row in rows if row[0] <= tau])
        assert reasons == []
        told: list[tuple[int, int]] = []
        for change in changes:
            if change["ts"] <= tau:
                row = (change["k"], change["v"])
                told.append(row) if change["op"] == "+" else told.remove(row)
        assert sorted(told) == sorted(row[2:] for row in held)
