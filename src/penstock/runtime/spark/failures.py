"""Failures of a streaming query as Spark tells them, as errors of Penstock's."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Any

from penstock.connectors.seals import damaged
from penstock.errors import CODES, PenstockError
from penstock.runtime.spark.session import first_line

_OWN_ERROR = re.compile(r"error (P\d{4}): (.*)")
_HINT = re.compile(r"^\s*hint: (.*)$", re.MULTILINE)
#: What every worker of ours imports.
_OURS = re.compile(r"'(?:penstock|pyarrow|numpy|numba)[.\w]*'")
#: What Spark says of a file of a log that is not what it wrote, and of one that is gone.
_BROKEN_LOG = re.compile(
    r"(Checksum error: |Malformed log file |Incomplete log file )[^\n]*"
    r"|(?:file:\S+|batch \d+) doesn't exist[^\n]*|[^\n]*the metadata file is missing"
)
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.*)$", re.MULTILINE)


def _message(first: str, rest: str) -> str:
    """A message of several lines: the further ones are set in."""
    further = takewhile(lambda line: line.startswith("  ") and not _HINT.match(line), rest.split("\n")[1:])
    return "\n".join([first.strip(), *(line.rstrip() for line in further)])


def translate(failure: Any, log: Path | None = None) -> PenstockError:
    """A failure as Spark tells it, as one of ours: an error of Penstock that a worker raised keeps its code. log: the
    run's in Spark."""
    text = str(failure)
    own = _OWN_ERROR.search(text)
    if own and own[1] in CODES:
        hint = _HINT.search(text, own.end())
        return PenstockError(own[1], _message(own[2], text[own.end() :]), hint=hint[1].strip() if hint else None)
    if "No space left on device" in text:
        return PenstockError("P0601", "the disk is full", hint="free space and start again with the same --checkpoint")
    if log is not None and (broken := _BROKEN_LOG.search(text)) and (broken[1] is None or str(log) in broken[0]):
        return damaged(log, ValueError(broken[0]))
    python = _PYTHON_ERROR.findall(text)
    shown = f"{python[-1][0]}: {python[-1][1]}" if python else first_line(text)
    advice = "`penstock --debug run ...` tells the whole story"
    if python and python[-1][0] == "ModuleNotFoundError" and _OURS.search(python[-1][1]):
        advice = (
            "Spark's workers run another Python: set PYSPARK_PYTHON to the one that has Penstock, before Spark starts"
        )
    return PenstockError("P0601", f"the run failed: {shown}", hint=advice, cause=failure)
