"""The DataFrames of a job: from the rounds, or the user's DataFrames, to the packets that leave the last stage.

Where the state lies in files of the checkpoint, Spark's streaming query only lists the rounds that are due, and the
stages of a batch are a plan of that batch alone (`Pipeline`), so the plan of a run can change between two batches.
Where Spark reads a source or keeps the state, the stages are part of the streaming query (`assemble`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType
from pyspark.util import PythonEvalType

from penstock.connectors.deadletters import DeadLetters
from penstock.physical.execution.answers import answer_tables
from penstock.physical.operators import Rejection
from penstock.runtime.rejected_rows import write_rejections
from penstock.runtime.spark.checkpoint.folder import Folder, Job
from penstock.runtime.spark.input import source_log
from penstock.runtime.spark.startup.session import job_session
from penstock.runtime.spark.worker.answer_writer import PendingAnswer, answers_in
from penstock.runtime.spark.worker.data_source import PenstockSource
from penstock.runtime.spark.worker.job_files import load_job
from penstock.runtime.spark.worker.packets import (
    SPARK_SCHEMA,
    AnswerOf,
    FewOfMany,
    Signal,
    read_kind,
    read_rejected,
)
from penstock.runtime.spark.worker.processor import KeyedStage
from penstock.runtime.spark.worker.tasks import (
    Task,
    batch_number,
    ingest_frame,
    ingest_read_tasks,
    keyed_stage,
    task_number,
)

_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"
_TASK_COLUMNS = ("path", "content")
_PACKET_COLUMNS = tuple(field.split()[0] for field in SPARK_SCHEMA.split(","))
#: The schema of packets; as text the JVM would have to parse it for each function.
_PACKETS = StructType(
    [StructField("shard", IntegerType()), StructField("kind", StringType()), StructField("blob", BinaryType())]
)


def round_files(spark: SparkSession, shards: int, rounds: Path) -> DataFrame:
    """Return the streaming DataFrame of the read tasks of a run, one a row. rounds: the folder in which its rounds
    appear."""
    session = job_session(spark, shards)
    reader = session.readStream.format("binaryFile").schema(_FILE_SCHEMA).option("maxFileAge", source_log.MOST_AGE)
    return reader.load(f"{rounds}/*").select(*_TASK_COLUMNS)


class Pipeline:
    """The ingest and the stages of one job, over the read tasks of a batch.

    A Python function is sent to the JVM once, not in every batch. Spark analyses a DataFrame with each operation from
    which it is made; the plan of the first batch is analysed so, and every later one is that plan over the read tasks
    of its own, analysed once.
    """

    def __init__(self, folder: Folder, job: Job, digest: str) -> None:
        root = str(folder.root)
        self._shards = job.shards
        self._ingest = _column(ingest_read_tasks(root, digest), _TASK_COLUMNS)
        self._stages = [
            _column(keyed_stage(root, digest, stage), _PACKET_COLUMNS) for stage in range(1, job.plan.stages + 1)
        ]
        self._first: _AnalysedPlan | None = None

    def packets(self, read_tasks: DataFrame) -> DataFrame:
        """Return the packets that leave the last stage, from the read tasks of one batch."""
        if self._first is not None and self._first.reads(read_tasks):
            return self._first.over(read_tasks)
        packets = _map_in_arrow(read_tasks, self._ingest)
        for stage in self._stages:
            packets = _map_in_arrow(packets.repartition(self._shards, "shard"), stage)
        self._first = _AnalysedPlan(read_tasks, packets, 1 + 2 * len(self._stages))
        return packets


class _AnalysedPlan:
    """The operators of an analysed DataFrame, to be put over another one whose columns have the same identifiers, as
    those of all batches of a streaming query do.

    Args:
        read: the DataFrame below them.
        made: the DataFrame made of it.
        count: the number of operators between them, with one input each.
    """

    def __init__(self, read: DataFrame, made: DataFrame, count: int) -> None:
        self._of_rows = made.sparkSession._jvm.org.apache.spark.sql.classic.Dataset.ofRows
        self._columns = _columns(read)
        self._operators = [made._jdf.queryExecution().analyzed()]
        while len(self._operators) < count:
            self._operators.insert(0, self._operators[0].child())

    def reads(self, frame: DataFrame) -> bool:
        """Return whether the operators find their columns in `frame`."""
        return _columns(frame) == self._columns

    def over(self, frame: DataFrame) -> DataFrame:
        """Return the DataFrame that the operators make of `frame`."""
        plan = frame._jdf.logicalPlan()
        for operator in self._operators:
            plan = operator.withNewChildInternal(plan)
        return DataFrame(self._of_rows(frame._jdf.sparkSession(), plan), frame.sparkSession)


def _columns(frame: DataFrame) -> str:
    """Return the columns of a DataFrame with their identifiers."""
    return str(frame._jdf.logicalPlan().output().toString())


def _column(task: Task, columns: tuple[str, ...]) -> Any:
    """Return the call of `task` on these columns as Spark's `mapInArrow` takes it."""
    function: Any = pandas_udf(task, returnType=_PACKETS, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    return function(*_named(SparkContext._active_spark_context, columns))


@lru_cache(maxsize=4)
def _named(context: object, names: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the columns with these names in the JVM of `context`. A change of the plan needs the same ones again, and
    each costs a call of the JVM."""
    return tuple(map(col, names))


def _map_in_arrow(frame: DataFrame, call: Any) -> DataFrame:
    return DataFrame(frame._jdf.mapInArrow(call._jc, False, None), frame.sparkSession)


def assemble(
    spark: SparkSession,
    folder: Folder,
    job: Job,
    digest: str,
    frames: Mapping[str, DataFrame],
    rounds: Path | None = None,
) -> DataFrame:
    """Return the streaming DataFrame of packets that leave the last stage.

    Args:
        frames: the DataFrame sources by name.
        rounds: the folder in which the run's rounds appear as files; None lets Penstock's data source plan them, for a
            result whose queries and checkpoint are the user's.
    """
    root = str(folder.root)
    if rounds is None:
        session = job_session(spark, job.shards)
        session.dataSource.register(PenstockSource)
        packets = session.readStream.format("penstock").option("folder", root).option("job", digest).load()
    else:
        packets = round_files(spark, job.shards, rounds).mapInArrow(ingest_read_tasks(root, digest), SPARK_SCHEMA)
    for name in sorted(job.intake.spark_sources):
        # One task reads a DataFrame source, so that its rows have one order of arrival.
        packets = packets.unionByName(
            frames[name].coalesce(1).mapInArrow(ingest_frame(root, digest, name), SPARK_SCHEMA)
        )
    for stage in range(1, job.plan.stages + 1):
        if rounds is not None and job.state_store == "files":
            shards = packets.repartition(job.shards, "shard")
            packets = shards.mapInArrow(keyed_stage(root, digest, stage), SPARK_SCHEMA)
        else:
            processor = KeyedStage(root, digest, stage)
            packets = packets.groupBy("shard").transformWithState(processor, SPARK_SCHEMA, "append", "none")
    return packets


def answers_only(packets: DataFrame, folder: Folder, digest: str, query: str, schema: object) -> DataFrame:
    """Return the rows of one query's answer, as a DataFrame for any Spark sink."""
    root = str(folder.root)

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job, _ = load_job(root, digest)
        query_plan = job.plan.queries[query]
        rejected: list[Rejection] = []
        for batch in batches:
            answers: list[PendingAnswer] = []
            for text, blob in zip(batch.column("kind").to_pylist(), batch.column("blob"), strict=True):
                kind = read_kind(text)
                if kind is Signal.REJECTED:
                    rejected += read_rejected(blob.as_py())
                elif kind in (AnswerOf(query), FewOfMany()):
                    found = answers_in(kind, blob.as_buffer())
                    answers += [chunk for name, chunks in found if name == query for chunk in chunks]
            for table in answer_tables(query_plan, answers) if answers else ():
                yield from table.to_batches()
        letters = DeadLetters(Folder(root).dead_letters)
        write_rejections(rejected, job.plan.sources, letters, batch_number(), task_number())

    return packets.mapInArrow(unpack, schema)
