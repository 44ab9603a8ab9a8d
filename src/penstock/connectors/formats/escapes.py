"""csv whose quoted cells have a quote behind an escape, as Spark writes `\\"`, as csv that doubles its quotes.

Contract: each byte is looked at once. In a quoted cell an escape before a quote or another escape stands for that;
before anything else it is a letter. Outside of quotes it is a letter too. Bounds of records, and the values of cells,
are then those of the text that comes out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.arrays import Bytes, Int64s
from penstock.compilation import loop

#: Where the next byte stands: at the beginning of a cell, in a plain one, in a quoted one, behind an escape in it, and
#: behind a quote in it.
_BEGIN, _PLAIN, _QUOTED, _ESCAPED, _CLOSED = range(5)


@dataclass
class EscapedQuotes:
    """Rewrites a text piece by piece.

    Args:
        delimiter, quote, escape: one ASCII character each; the escape is another one than the quote.
    """

    delimiter: str
    quote: str
    escape: str
    _state: Int64s = field(default_factory=lambda: np.zeros(1, np.int64))

    def rewritten(self, piece: bytes) -> bytes:
        """Return the next piece as it is read; the last one is empty."""
        if not piece:
            held, self._state[0] = self._state[0] == _ESCAPED, _BEGIN
            return self.escape.encode() if held else b""
        signs = np.frombuffer((self.delimiter + self.quote + self.escape).encode(), np.uint8)
        written = np.empty(2 * len(piece) + 1, np.uint8)
        return written[: _rewrite(np.frombuffer(piece, np.uint8), signs, self._state, written)].tobytes()


@loop
def _rewrite(piece: Bytes, signs: Bytes, state: Int64s, written: Bytes) -> int:
    delimiter, quote, escape = signs[0], signs[1], signs[2]
    place, size = state[0], 0
    for i in range(piece.shape[0]):
        byte = piece[i]
        if place == _QUOTED and byte == escape:
            place = _ESCAPED
            continue
        if place == _ESCAPED:
            if byte == quote:
                written[size] = quote
                size += 1
            elif byte != escape:
                written[size] = escape
                size += 1
            place = _QUOTED
        elif place == _QUOTED:
            place = _CLOSED if byte == quote else _QUOTED
        elif byte == quote and place in (_BEGIN, _CLOSED):
            place = _QUOTED
        elif byte == delimiter or byte == 10 or byte == 13:
            place = _BEGIN
        else:
            place = _PLAIN
        written[size] = byte
        size += 1
    state[0] = place
    return size
