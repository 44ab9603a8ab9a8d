"""Limits of the doors, from the settings of the server's start."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from penstock.errors import Busy, PenstockError
from penstock.settings import Settings

_MINUTE = 60.0
#: A word or number, or a sign. Those within texts and comments count too: only the lexer decides where a text ends,
#: and a second rule for it could be led to skip what is none.
_ITEM = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class DoorLimits:
    """Limits. bodies: of posted rows, in bytes; seconds: of a one-time query; 0: none; scripts: in a minute by each
    token; 0: any number; items: words, numbers and signs of a script."""

    statement_bytes: int
    body_bytes: int
    connections: int
    subscriptions: int
    seconds: float
    rows: int
    scripts: int = 0
    items: int = 120_000

    @staticmethod
    def of(settings: Settings) -> DoorLimits:
        return DoorLimits(
            settings.get_int("max_statement_bytes"),
            settings.get_int("max_body_bytes"),
            settings.get_int("max_connections"),
            settings.get_int("max_subscriptions"),
            float(settings["statement_timeout"]),
            settings.get_int("max_result_rows"),
            settings.get_int("max_scripts_per_minute"),
            settings.get_int("max_statement_items"),
        )

    def check_script(self, text: str) -> None:
        """Raises PenstockError P0804 for a script that is too large. What it costs depends on its items,
        which are counted before anything reads it: a megabyte of signs is a million of nodes, bound by one thread."""
        if len(text.encode("utf-8", "surrogatepass")) > self.statement_bytes:
            message = f"the script is larger than {self.statement_bytes:,} bytes, the server's max_statement_bytes"
            raise PenstockError("P0804", message, hint="send it in parts, and rows as a post or by COPY")
        if len(text) > self.items < sum(1 for _ in islice(_ITEM.finditer(text), self.items + 1)):
            message = f"the script has more than {self.items:,} words, numbers and signs, "
            message += "the server's max_statement_items"
            raise PenstockError("P0804", message, hint="send it in parts, and rows as a post or by COPY")


class ScriptRate:
    """How many scripts each token has sent in the last minute. most: 0 for any number; clock: seconds, monotonic."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._guard = threading.Lock()
        #: By token, how many it may send now, and as of when. There are as many as the server has known.
        self._left: dict[str, tuple[float, float]] = {}

    def count(self, token: str) -> None:
        """Count a script. Raises Busy beyond the limit."""
        if not self._most:
            return
        with self._guard:
            now = self._clock()
            left, at = self._left.get(token, (float(self._most), now))
            left = min(float(self._most), left + (now - at) * self._most / _MINUTE)
            if left < 1:
                message = f"a token may send {self._most:,} scripts in a minute, the server's max_scripts_per_minute"
                raise Busy(message, (1 - left) * _MINUTE / self._most, hint="send several statements as one script")
            self._left[token] = left - 1, now
