"""Files that are one JSON array, as lines of one element each.

Contract: each byte is looked at once. What an element is follows from the brackets, texts and commas alone, so an
element that is no JSON is one line, and its reader rejects it alone. A line end between the tokens of an element
becomes a blank; one within a text, which JSON does not allow, a byte that it does not allow either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.arrays import Bytes, Int64s
from penstock.compilation import loop


@dataclass
class ArrayCutter:
    """Cuts the text of an array into lines, piece by piece.

    state: how many brackets are open, whether a text is, and whether the byte before escapes the next one.
    """

    state: Int64s = field(default_factory=lambda: np.zeros(3, np.int64))

    @property
    def depth(self) -> int:
        return int(self.state[0])

    def lines(self, data: bytes) -> bytes:
        """Return the next piece with a line end behind each element, and no other ones."""
        changed = np.frombuffer(data, np.uint8).copy()
        _cut(changed, self.state)
        return changed.tobytes()


@loop
def _cut(data: Bytes, state: Int64s) -> None:
    depth, in_text, escaped = state[0], state[1], state[2]
    for i in range(data.shape[0]):
        byte = data[i]
        if in_text:
            if byte == 10 or byte == 13:
                data[i] = 1
            if escaped:
                escaped = 0
            elif byte == 92:  # \
                escaped = 1
            elif byte == 34:  # "
                in_text = 0
        elif byte == 34:
            in_text = 1
        elif byte == 10 or byte == 13:
            data[i] = 32
        elif byte == 91 or byte == 123:  # [ and {
            depth += 1
            if depth == 1:
                data[i] = 32
        elif byte == 93 or byte == 125:  # ] and }
            depth = max(depth - 1, 0)
            if depth == 0:
                data[i] = 10
        elif byte == 44 and depth == 1:  # ,
            data[i] = 10
    state[0], state[1], state[2] = depth, in_text, escaped


def places(lines: bytes, text: bytes, numbers: Sequence[int]) -> list[int]:
    """Return in which lines of a text elements begin, from 0.

    Args:
        lines: those that `ArrayCutter` makes of it.
        numbers: of the elements' lines among these, from 1.
    """
    made, written = (np.flatnonzero(np.frombuffer(data, np.uint8) == 10) for data in (lines, text))
    found = []
    for number in numbers:
        start = int(made[number - 2]) + 1 if number > 1 else 0
        line = lines[start : int(made[number - 1]) if number <= len(made) else len(lines)]
        found.append(int(np.searchsorted(written, start + len(line) - len(line.lstrip()))))
    return found
