"""Settings of the C library by which a process that holds state returns freed memory to the system.

glibc maps large arrays one by one and unmaps them when they are freed, but each freed array raises the size above which
it does so, up to 32 MiB, and with it the free space that it keeps at the end of the heap. In a process whose arrays
grow and are merged continuously, nearly all arrays then lie in the heap, where one live array keeps the space around it
from being returned. `give_back` fixes both sizes (mallopt(3)).

A process that computes one query after the other needs the same arrays again: `keep_freed` has it keep what they freed,
up to a size, so that they are not mapped page by page each time, and `release` returns it.

A server that runs for weeks frees, now and then, one large array among small ones that stay: each time it is made anew,
Python's table of interned strings, which has 4 MB. The hole is kept, and the next array comes to lie in the heap of
another thread. `FreedMemory` returns the pages of holes from time to time.

Arrow's wheels allocate with mimalloc, which keeps what each thread has freed for that thread. A server reads results in
several threads, a little for each of many clients: `arrow_by_malloc` has Arrow use the C library.

Python looks for unreachable cycles among all objects only when those that are new are a quarter of the old ones. A
server has some 290,000 after its start, so that plans of dropped queries stayed for hundreds of them:
`collect_new_only` leaves the old ones out.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable

#: Arrays of at least this size are returned to the system when freed. Smaller ones are allocated again in every round:
#: mapping each of them page by page would cost more than some rounds compute.
LARGE = 4 << 20
#: Maximum free space kept at the end of the heap, in bytes.
SPARE = 16 << 20
#: The same of a process that keeps what it freed, and the largest array that it keeps: glibc takes no larger size.
KEPT, KEPT_ARRAY = 128 << 20, 32 << 20

#: Seconds between two returns of freed memory at least, and how many times as long as the last one took.
RETURN_EVERY, _OF_TIME = 60.0, 1000
#: <malloc.h>
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def give_back() -> bool:
    """Fix both sizes in this process and those forked from it; return whether its C library supports them (glibc)."""
    library = _glibc()
    return library is not None and bool(
        library.mallopt(_MMAP_THRESHOLD, LARGE) and library.mallopt(_TRIM_THRESHOLD, SPARE)
    )


def keep_freed() -> None:
    """Have this process keep what it freed, for what it allocates next; nothing without glibc."""
    library = _glibc()
    if library is not None:
        library.mallopt(_MMAP_THRESHOLD, KEPT_ARRAY)
        library.mallopt(_TRIM_THRESHOLD, KEPT)


def release() -> None:
    """Return what this process freed to the system; nothing without glibc."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(ctypes.c_size_t(0))


def freed() -> int:
    """Return the bytes that this process freed and keeps; 0 where that is not known."""
    library = _glibc()
    if library is None or not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = _MallocInfo
    return int(library.mallinfo2().freed)


class FreedMemory:
    """Returns what this process freed to the system, in time. While one thread does, no other can allocate in the same
    heap: of a large one that has many holes it is done less often.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = clock() + RETURN_EVERY

    def look(self) -> bool:
        """Return it if that is due; return whether it was."""
        began = self._clock()
        if began < self._due:
            return False
        release()
        ended = self._clock()
        self._due = ended + max(RETURN_EVERY, _OF_TIME * (ended - began))
        return True


class _MallocInfo(ctypes.Structure):
    """<malloc.h>"""

    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", *"123456", "used", "freed", "keep")]


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None


def arrow_by_malloc() -> None:
    """Have Arrow allocate with the C library in this process, and in those forked from it."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())


def collect_new_only() -> None:
    """Have the collector of garbage leave alone what there is now, so that it looks among what comes the more often."""
    gc.collect()
    gc.freeze()
    # It compares with what the last collection of everything has left.
    gc.collect()
