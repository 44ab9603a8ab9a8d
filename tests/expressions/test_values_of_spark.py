"""Functions have the values of Spark 4.3, recorded in `values_of_spark.txt`: a call, and its value as JSON, a line."""

from __future__ import annotations

import json
from pathlib import Path

import penstock

RECORDED = [
    line.split("\t")
    for line in (Path(__file__).parent / "values_of_spark.txt").read_text(encoding="utf-8").split("\n")
    if line
]


def test_calls_have_the_values_of_spark() -> None:
    items = ", ".join(f"{call} AS c{number}" for number, (call, _) in enumerate(RECORDED))
    (row,) = penstock.Session().select(f"SELECT {items}").to_arrow().to_pylist()
    found = [(call, value) for (call, _), value in zip(RECORDED, row.values(), strict=True)]
    assert found == [(call, json.loads(value)) for call, value in RECORDED]
