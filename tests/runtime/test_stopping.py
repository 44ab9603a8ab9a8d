"""A stop that somebody asks for ends quietly, also where Spark does not stop its query in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException

from penstock.runtime.spark.job import RoundsQuery


class JavaError(Py4JJavaError):
    """What py4j raises for an exception of Spark, without a JVM."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        return "An error occurred while calling o70.stop.\n: java.util.concurrent.TimeoutException: not stopped"


class Query:
    """A query that is active and fails to stop."""

    def __init__(self, failure: Exception) -> None:
        self.failure, self.stops, self.isActive = failure, 0, True

    def stop(self) -> None:
        self.stops += 1
        raise self.failure


@pytest.mark.parametrize("failure", [JavaError(), StreamingQueryException("interrupted")])
def test_a_stop_that_spark_does_not_carry_out_is_quiet(failure: Exception, tmp_path: Path) -> None:
    query: Any = Query(failure)
    RoundsQuery(query, tmp_path).stop()
    assert query.stops == 1
