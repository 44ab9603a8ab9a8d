"""The checksum of a file that is written in pieces: 64 bits, at the speed of memory.

It is computed over every byte that a stream retains, so it must cost little beside the reading of these: CRC-32 of
Python takes four times as long, as long as the writing. The words of 8 bytes are the coefficients of a polynomial
that is evaluated at an odd number modulo 2^64, so a change within one word always changes it. The upper half of a word
is mixed into its lower half before, as a change of upper bits alone would only reach those of the result.

Contract: the checksum follows from the bytes, whatever the pieces are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import UInt64s
from penstock.physical.kernels.compiling import compiled

if TYPE_CHECKING:
    from typing_extensions import Buffer

_WORD = 8
_BITS = 2**64
_BASE = 0x9E3779B97F4A7C15
_P1, _P2, _P3, _P4, _P5, _P6, _P7, _P8 = (np.uint64(pow(_BASE, power, _BITS)) for power in range(1, 9))
_HALF = np.uint64(32)


@compiled(reads="words", beside=True)
def _evaluated(words: UInt64s, state: np.uint64) -> np.uint64:
    """Continue the polynomial with `words`, eight at once: each step waits for the result of the one before."""
    whole = words.shape[0] - words.shape[0] % 8
    for i in range(0, whole, 8):
        a, b, c, d = words[i], words[i + 1], words[i + 2], words[i + 3]
        e, f, g, h = words[i + 4], words[i + 5], words[i + 6], words[i + 7]
        upper = (a ^ a >> _HALF) * _P7 + (b ^ b >> _HALF) * _P6 + (c ^ c >> _HALF) * _P5 + (d ^ d >> _HALF) * _P4
        lower = (e ^ e >> _HALF) * _P3 + (f ^ f >> _HALF) * _P2 + (g ^ g >> _HALF) * _P1 + (h ^ h >> _HALF)
        state = state * _P8 + upper + lower
    for i in range(whole, words.shape[0]):
        state = state * _P1 + (words[i] ^ words[i] >> _HALF)
    return state


class FileChecksum:
    """The checksum of the bytes that have been added so far."""

    def __init__(self) -> None:
        self._state = np.uint64(1)
        self._length = 0
        #: Bytes behind the last whole word.
        self._rest = b""

    def add(self, data: Buffer) -> None:
        """Add the next bytes."""
        content = memoryview(data).cast("B")
        self._length += content.nbytes
        if self._rest:
            missing = min(_WORD - len(self._rest), content.nbytes)
            self._rest += bytes(content[:missing])
            content = content[missing:]
            if len(self._rest) < _WORD:
                return
            self._evaluate(np.frombuffer(self._rest, np.uint64))
        whole = content.nbytes - content.nbytes % _WORD
        self._rest = bytes(content[whole:])
        words = np.frombuffer(content[:whole], np.uint64)
        self._evaluate(words if words.flags.aligned else words.copy())

    def _evaluate(self, words: np.ndarray) -> None:
        if len(words):
            self._state = np.uint64(_evaluated(words, self._state))

    @property
    def text(self) -> str:
        """Return the checksum in 16 hexadecimal digits."""
        rest = int.from_bytes(self._rest, "little")
        rest ^= rest >> 32
        state = (int(self._state) * _BASE + rest) % _BITS
        return f"{(state * _BASE + self._length) % _BITS:016x}"


def checksum(data: Buffer) -> str:
    """Return the checksum of bytes."""
    whole = FileChecksum()
    whole.add(data)
    return whole.text
