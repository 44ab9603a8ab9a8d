"""The checksum of retained files: of the bytes, whatever their pieces; changed bytes change it."""

from __future__ import annotations

import random

import pytest

from penstock.runtime.spark.retention.file_checksum import FileChecksum, checksum

_BASE, _BITS = 0x9E3779B97F4A7C15, 2**64
SIZES = (0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 1000, 4099)


def by_definition(data: bytes) -> str:
    """The polynomial, one word after the other, in whole numbers of Python."""
    state = 1
    whole = len(data) - len(data) % 8
    words = [data[i : i + 8] for i in range(0, whole, 8)] + [data[whole:]]
    for word in words:
        value = int.from_bytes(word, "little")
        state = (state * _BASE + (value ^ value >> 32)) % _BITS
    return f"{(state * _BASE + len(data)) % _BITS:016x}"


@pytest.mark.parametrize("size", SIZES)
def test_it_is_that_of_the_bytes_whatever_the_pieces(size: int) -> None:
    draw = random.Random(size)
    data = draw.randbytes(size)
    assert checksum(data) == by_definition(data)
    for _ in range(20):
        cuts = sorted(draw.randrange(size + 1) for _ in range(draw.randrange(6)))
        whole = FileChecksum()
        for low, high in zip([0, *cuts], [*cuts, size], strict=True):
            # A view into the middle is at no multiple of 8 bytes.
            whole.add(memoryview(data)[low:high])
        assert whole.text == checksum(data)


def test_damage_changes_it() -> None:
    draw = random.Random(7)
    for _ in range(2_000):
        data = bytearray(draw.randbytes(draw.choice((8, 100, 512))))
        before = checksum(bytes(data))
        kind = draw.randrange(6)
        at = draw.randrange(len(data))
        other = draw.randrange(len(data) // 8) * 8
        damaged = bytearray(data)
        if kind == 0:
            damaged[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            damaged[at:] = bytes(len(data) - at)
        elif kind == 2:
            damaged = damaged[:at]
        elif kind == 3:
            damaged += bytes(draw.randint(1, 9))
        elif kind == 4:
            # The uppermost bit of two words: without mixing, both would reach the uppermost bit alone.
            damaged[other + 7] ^= 0x80
            damaged[7] ^= 0x80
        else:
            damaged[0:8], damaged[other : other + 8] = damaged[other : other + 8], damaged[0:8]
        assert (checksum(bytes(damaged)) == before) == (damaged == data), (kind, at, other)
