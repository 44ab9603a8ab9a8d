"""Failures of a streaming query as Spark tells them, as errors of Penstock's."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

from penstock.errors import CODES, PenstockError
from penstock.runtime.spark.session import first_line

_OWN_ERROR = re.compile(r"error (P\d{4}): (.*)")
_HINT = re.compile(r"^\s*hint: (.*)$", re.MULTILINE)
#: What every worker of ours imports.
_OURS = re.compile(r"'(?:penstock|pyarrow|numpy|numba)[.\w]*'")
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.*)$", re.MULTILINE)


def _message(first: str, rest: str) -> str:
    """A message of several lines: the further ones are set in."""
    further = takewhile(lambda line: line.startswith("  ") and not _HINT.match(line), rest.split("\n")[1:])
    return "\n".join([first.strip(), *(line.rstrip() for line in further)])


def translate(failure: Any) -> PenstockError:
    """A failure as Spark tells it, as one of ours: an error of Penstock that a worker raised keeps its code."""
    text = str(failure)
    own = _OWN_ERROR.search(text)
    if own and own[1] in CODES:
        hint = _HINT.search(text, own.end())
        return PenstockError(own[1], _message(own[2], text[own.end() :]), hint=hint[1].strip() if hint else None)
    if "No space left on device" in text:
        return PenstockError("P0601", "the disk is full", hint="free space and start again with the same --checkpoint")
    python = _PYTHON_ERROR.findall(text)
    shown = f"{python[-1][0]}: {python[-1][1]}" if python else first_line(text)
    advice = "`penstock --debug run ...` tells the whole story"
    if python and python[-1][0] == "ModuleNotFoundError" and _OURS.search(python[-1][1]):
        advice = (
            "Spark's workers run another Python: set PYSPARK_PYTHON to the one that has Penstock, before Spark starts"
        )
    return PenstockError("P0601", f"the run failed: {shown}", hint=advice, cause=failure)
