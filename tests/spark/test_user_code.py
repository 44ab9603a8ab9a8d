"""User-defined functions and aggregates on Spark's workers, by reference and by value."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.session import Session

pytestmark = pytest.mark.spark

SCRIPT = """
CREATE FUNCTION checked RETURNS BIGINT AS 'penstock.testing.samples:checked';
CREATE AGGREGATE total (BIGINT) RETURNS BIGINT AS 'penstock.testing.samples:Total';
CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
INSERT INTO S VALUES (1, 1, 5), (2, 1, 7), (2, 2, 1), (4, 1, 2);
"""


def test_values_come_back(spark: SparkSession) -> None:
    session = Session(spark)
    session.execute(SCRIPT)
    factor = 3

    @session.function(returns="BIGINT")
    def scaled(numbers: pa.Array) -> pa.Array:
        return pc.multiply(numbers, factor)

    table = session.query("SELECT k, scaled(total(a)) AS t FROM S [RANGE 2 SECOND] WHERE checked(a) > 1 GROUP BY k")
    found = [tuple(row.values()) for row in table.collect().to_pylist()]
    assert found == [
        (1, "+", 1, 15),
        (2, "-", 1, 15),
        (2, "+", 1, 36),
        (3, "-", 1, 36),
        (3, "+", 1, 21),
        (4, "-", 1, 21),
        (4, "+", 1, 6),
    ]


def test_a_failure_shows_rows_and_traceback(spark: SparkSession) -> None:
    session = Session(spark)
    session.execute(SCRIPT + "INSERT INTO S VALUES (5, 1, -4);")
    with pytest.raises(PenstockError) as caught:
        session.query("SELECT checked(a) AS a FROM S").collect()
    assert caught.value.code == "P0621"
    assert "ValueError: -4 is negative" in caught.value.message
    assert "(-4)" in caught.value.message
    assert "raise ValueError" in caught.value.message
