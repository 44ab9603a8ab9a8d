"""How the C library of a process that holds state gives memory back.

glibc takes large arrays from the system by themselves and gives them back when they are freed, but raises the size from
which on it does so with every such array that is freed, up to 32 MiB, and the rest that it keeps at the heap's end with
it. In a process whose arrays grow and are merged all day, nearly all come to lie in the heap then, where one that lives
holds the room of many that are gone. `give_back` fixes both sizes (mallopt(3)).
"""

from __future__ import annotations

import ctypes
import sys

#: Arrays of this size and longer are given back at once. Smaller ones are made anew in every round: to take each from
#: the system, page by page, would cost more than what is computed in some.
LARGE = 4 << 20
#: What the heap keeps free at its end at the most.
SPARE = 16 << 20

#: <malloc.h>
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def give_back() -> bool:
    """Fix the sizes in this process and those forked from it; whether its C library has them (glibc)."""
    if not sys.platform.startswith("linux"):
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(library.mallopt(_MMAP_THRESHOLD, LARGE) and library.mallopt(_TRIM_THRESHOLD, SPARE))
