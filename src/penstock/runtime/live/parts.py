"""Lists of parts that only grow at their end: elements and tables, of which each part is stored once."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from typing import TypeVar

#: Number of parts of similar size that are put together.
_MERGED = 8
#: Parts are not put together to more rows than this.
_LARGEST = 1 << 18

Part = TypeVar("Part", bound=Sized)


def append_part(parts: list[Part], part: Part, joined: Callable[[Sequence[Part]], Part]) -> None:
    """Append a part. Parts of similar size at the end are put together, so that there are few and a row is copied only
    a few times; the other parts stay the same objects.

    Args:
        joined: returns parts as one.
    """
    parts.append(part)
    while len(parts) >= _MERGED:
        sizes = [len(one) for one in parts[-_MERGED:]]
        if sum(sizes) > _LARGEST or sizes[0] > sum(sizes[1:]):
            return
        parts[-_MERGED:] = [joined(parts[-_MERGED:])]
