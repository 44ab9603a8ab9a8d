"""Check the Python that Spark's workers run in an existing session: it must have the packages of this process.

A session that Penstock starts runs its workers with this process's Python. An existing one runs what `PYSPARK_PYTHON`
named when Spark started, or `python3`, which may lack Penstock or be of another version.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.runtime.spark.startup.session import first_line

#: Modules that every Penstock worker imports.
_LACKS = re.compile(r"No module named '(?P<name>(?:penstock|pyarrow|pandas|numpy|numba|sqlglot|pyspark)[.\w]*)'")
_VERSIONS = re.compile(r"different version: (?P<theirs>[\d.]+) than that in driver:? (?P<ours>[\d.]+)")


def check_workers(spark: SparkSession) -> None:
    """Run a task if the workers have another version of Python. Raises PenstockError P0604."""
    chosen = _chosen()
    if chosen is None or _same(chosen):
        return
    try:
        spark.range(1).mapInArrow(_try, "id long").toArrow()
    except Exception as error:
        failure = other_python(str(error))
        raise failure or _error(f"does not run: {first_line(error)}") from error


def _try(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import penstock.runtime.spark.worker.stage  # noqa: F401 - whether it can be imported, and what it needs

    yield from batches


def other_python(failure: str) -> PenstockError | None:
    """Return the error for a worker's failure caused by its Python, None for any other failure."""
    if versions := _VERSIONS.search(failure):
        return _error(f"is version {versions['theirs']}, not {versions['ours']}")
    if lacking := _LACKS.search(failure):
        return _error(f"has no module {lacking['name'].partition('.')[0]}")
    return None


def _error(what: str) -> PenstockError:
    here = f"{sys.executable} (Python {platform.python_version()})"
    return PenstockError(
        "P0604",
        f"the Python of Spark's workers, {_chosen() or 'python3'}, {what}; this process runs {here}",
        hint=f"set PYSPARK_PYTHON to {sys.executable} before Spark starts, or to a Python {sys.version_info.major}."
        f"{sys.version_info.minor} that has Penstock on every machine",
    )


def _chosen() -> str | None:
    """Return the command with which Spark starts a worker, None where it is not known here."""
    context = SparkContext._active_spark_context
    return None if context is None else str(context.pythonExec)


def _same(chosen: str) -> bool:
    """Return whether a worker's Python is that of this process. Links within one environment are the same; environments
    made of the same Python are not.
    """
    executable = shutil.which(chosen)
    if executable is None:
        return False
    ours, theirs = Path(sys.executable), Path(executable).absolute()
    return theirs == ours or (theirs.parent == ours.parent and theirs.resolve() == ours.resolve())
