"""The log of a process: what the layers tell (`penstock.events`), as text or as lines of JSON on standard error.

Standard output belongs to results. What Spark itself logs stays in its own file.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
from datetime import UTC, datetime

from penstock.redaction import redacted_text


class LogFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(form: LogFormat, level: LogLevel) -> None:
    """Send what Penstock logs to standard error."""
    handler = _StandardError()
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
    root = logging.getLogger("penstock")
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.value.upper())
    # They log what a caller of theirs would want to know, at levels of their own.
    for noisy in ("py4j", "pyspark"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


class _StandardError(logging.Handler):
    """Writes to what standard error is when something is told."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class TextLines(logging.Formatter):
    """`2026-01-01T10:00:00.123Z WARNING penstock.runtime late: 5 of 10 rows of S came late`."""

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "event", None)
        told = redacted_text(record.getMessage()) + _trace(self, record)
        return f"{_stamp(record)} {record.levelname} {record.name} {f'{event}: ' if event else ''}{told}"


class JsonLines(logging.Formatter):
    """One object a record: time, level, logger, event, message, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", None),
            "message": redacted_text(record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if trace := _trace(self, record):
            told["trace"] = trace
        return json.dumps(told, ensure_ascii=False, default=str)


def _stamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of a record that has one, which only --debug shows elsewhere."""
    return "" if not record.exc_info else "\n" + redacted_text(formatter.formatException(record.exc_info))
