"""Events in the life of a run, told through Python's `logging`: one logger per layer, named after it.

Contract: `tell` gives a record a message for people and, in `record.event` and `record.fields`, the same for programs.
Secrets are blotted out of both. Nothing is configured here: who starts the process says what becomes of the records
(`cli/logs.py` for the command line).
"""

from __future__ import annotations

import logging
from typing import Any

from penstock.redaction import BLOT, is_secret, redacted_text


def logger_of(layer: str) -> logging.Logger:
    """The logger of a layer: `penstock.<layer>`."""
    return logging.getLogger(f"penstock.{layer}")


def tell(logger: logging.Logger, level: int, event: str, message: str, **fields: Any) -> None:
    """Record that `event` happened. fields: plain values (texts, numbers, None, mappings and lists of them)."""
    if logger.isEnabledFor(level):
        shown = {key: _shown(key, value) for key, value in fields.items()}
        logger.log(level, "%s", redacted_text(message), extra={"event": event, "fields": shown})


def _shown(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return BLOT if is_secret(key) else redacted_text(value)
    if isinstance(value, dict):
        return {str(k): _shown(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(key, v) for v in value]
    return value
