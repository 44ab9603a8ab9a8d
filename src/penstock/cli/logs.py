"""The log of a process: events of all layers (`penstock.events`), as text or as lines of JSON on standard error.

Standard output is reserved for results. Spark's own log stays in its own file.
"""

from __future__ import annotations

import enum
import json
import logging
import sys
from collections.abc import Callable
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
    """Log to standard error."""
    handler = _StandardError()
    handler.setFormatter(JsonLogLines() if form is LogFormat.JSON else TextLines())
    root = logging.getLogger("penstock")
    for old_handler in list(root.handlers):
        root.removeHandler(old_handler)
    root.addHandler(handler)
    root.setLevel(level.value.upper())
    # A library that logs without a logger of its own makes Python write every record a second time.
    root.propagate = False
    # They log what callers handle themselves, at levels of their own.
    for library in ("py4j", "pyspark"):
        logging.getLogger(library).setLevel(logging.ERROR)


def silence(when: Callable[[], bool]) -> None:
    """Drop all records once `when` returns true."""
    for handler in logging.getLogger("penstock").handlers:
        handler.addFilter(lambda record: not when())


class _StandardError(logging.Handler):
    """Writes to the standard error of the moment at which a record is emitted."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class TextLines(logging.Formatter):
    """Formats `2026-01-01T10:00:00.123Z WARNING penstock.runtime late: 5 of 10 rows of S came late`."""

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "event", None)
        message = redacted_text(record.getMessage()) + _trace(self, record)
        return f"{_stamp(record)} {record.levelname} {record.name} {f'{event}: ' if event else ''}{message}"


class JsonLogLines(logging.Formatter):
    """Formats one object a record: time, level, logger, event, message, and the event's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", None),
            "message": redacted_text(record.getMessage()),
            **getattr(record, "fields", {}),
        }
        if trace := _trace(self, record):
            fields["trace"] = trace
        return json.dumps(fields, ensure_ascii=False, default=str)


def _stamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Return the traceback of a record that has one; elsewhere only --debug shows tracebacks."""
    return "" if not record.exc_info else "\n" + redacted_text(formatter.formatException(record.exc_info))
