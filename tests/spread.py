"""Which of many like cases `make test` tries. `make soak` tries the others, too."""

from __future__ import annotations

import zlib
from collections.abc import Sequence


class CaseSpread:
    """The cases of one test that is marked as `spread(every)`, in the order in which they are collected.

    The places of the values of its parameters are added up, and of these sums one in `every` is tried, so that what is
    left has many values of each parameter. Tests with the same parameters try other cases each.
    """

    def __init__(self, name: str, every: int) -> None:
        self._first, self._every = zlib.crc32(name.encode()), every
        self._places: list[dict[str, int]] = []

    def is_left_to_soak(self, ids: Sequence[str]) -> bool:
        """Return whether the next case, with these values of the parameters, is left to `make soak`."""
        self._places = self._places or [{} for _ in ids]
        places = [known.setdefault(one, len(known)) for known, one in zip(self._places, ids, strict=True)]
        return bool((self._first + sum(places)) % self._every)
