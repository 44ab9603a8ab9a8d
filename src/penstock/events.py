"""Events of a run, recorded through Python's `logging`: one logger per layer, named after it.

Contract: `log_event` gives a record a message for people and, in `record.event` and `record.fields`, the same for
programs. Secrets are removed from both. Nothing is configured here: the caller that starts the process decides where
the records go (`cli/logs.py` for the command line).
"""

from __future__ import annotations

import logging
from typing import Any

from penstock.redaction import BLOT, is_secret, redacted_text


def logger_of(layer: str) -> logging.Logger:
    """Return the logger of a layer: `penstock.<layer>`."""
    return logging.getLogger(f"penstock.{layer}")


def log_event(
    logger: logging.Logger, level: int, event: str, message: str, trace: BaseException | None = None, **fields: object
) -> None:
    """Log `event` with its message.

    Args:
        trace: an error whose traceback the record has.
        fields: plain values (texts, numbers, None, mappings and lists of them).
    """
    if logger.isEnabledFor(level):
        shown = {key: _shown(key, value) for key, value in fields.items()}
        logger.log(level, "%s", redacted_text(message), exc_info=trace, extra={"event": event, "fields": shown})


def _shown(key: str, value: Any) -> Any:
    if isinstance(value, str):
        return BLOT if is_secret(key) else redacted_text(value)
    if isinstance(value, dict):
        return {str(k): _shown(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(key, v) for v in value]
    return value
