"""Limits of user-defined code in a worker: of time, and of how often it may end its process."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

from pyspark import TaskContext

from penstock.expressions.user_calls import limited_calls
from penstock.runtime.spark.checkpoint.folder import Job
from penstock.temporary import WORKERS


def limited_user_code(job: Job) -> AbstractContextManager[None]:
    """Limit the calls of user-defined code in a task of a job whose queries fail alone."""
    if not job.isolated:
        return limited_calls(None)
    folder, context = os.environ.get(WORKERS), TaskContext.get()
    mark = None
    if folder is not None and context is not None:
        # Spark repeats a task whose process has ended under the same numbers.
        mark = Path(folder, f"calls-{context.stageId()}-{context.partitionId()}")
    return limited_calls(job.function_seconds, mark)
