"""Translate failures of a Spark streaming query into Penstock errors."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Any

from penstock.errors import CODES, PenstockError
from penstock.runtime.spark.startup.jvm import MORE_FILES, how_it_ended
from penstock.runtime.spark.startup.session import first_line, is_gone
from penstock.runtime.spark.startup.workers import other_python
from penstock.storage.seals import damaged

_OWN_ERROR = re.compile(r"error (P\d{4}): (.*)")
_HINT = re.compile(r"^\s*hint: (.*)$", re.MULTILINE)
#: Spark's messages about a log file that has changed, and about one that is missing.
_BROKEN_LOG = re.compile(
    r"(Checksum error: |Malformed log file |Incomplete log file )[^\n]*"
    r"|(?:file:\S+|batch \d+) doesn't exist[^\n]*|[^\n]*the metadata file is missing"
)
#: The last line of a traceback; an assertion may say nothing, and some of pyarrow's classes have other names.
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)|Arrow\w+)(?:: (.*))?$", re.MULTILINE)


def _lost_spark(failure: BaseException) -> PenstockError:
    return PenstockError(
        "P0601",
        f"the run failed: Spark's JVM {how_it_ended()}",
        cause=failure,
        hint="what is committed stays, and a run with a --checkpoint continues from it; "
        "the system's log shows whether memory was short",
    )


def _message(first: str, following: str) -> str:
    """Return a message with its continuation lines, which are indented."""
    continuation = takewhile(lambda line: line.startswith("  ") and not _HINT.match(line), following.split("\n")[1:])
    return "\n".join([first.strip(), *(line.rstrip() for line in continuation)])


def translate(failure: Any, log: Path | None = None) -> PenstockError:
    """Return a failure of Spark as a PenstockError; an error of Penstock that a worker raised keeps its code. log:
    Spark's log of the run.
    """
    if is_gone(failure):
        return _lost_spark(failure)
    text = str(failure)
    own_error = _OWN_ERROR.search(text)
    if own_error and own_error[1] in CODES:
        hint = _HINT.search(text, own_error.end())
        return PenstockError(
            own_error[1], _message(own_error[2], text[own_error.end() :]), hint=hint[1].strip() if hint else None
        )
    if "No space left on device" in text:
        return PenstockError("P0601", "the disk is full", hint="free space and start again with the same --checkpoint")
    if "Too many open files" in text:
        return PenstockError("P0601", "the run failed: too many files are open at once", hint=MORE_FILES, cause=failure)
    if (
        log is not None
        and (log_error := _BROKEN_LOG.search(text))
        and (log_error[1] is None or str(log) in log_error[0])
    ):
        return damaged(log, ValueError(log_error[0]))
    python_errors = _PYTHON_ERROR.findall(text)
    description = ": ".join(part for part in python_errors[-1] if part) if python_errors else first_line(text)
    advice = "`penstock --debug run ...` shows the traceback"
    if wrong_python := other_python(text):
        return wrong_python
    return PenstockError("P0601", f"the run failed: {description}", hint=advice, cause=failure)
