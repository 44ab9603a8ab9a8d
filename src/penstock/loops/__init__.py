"""How loops are compiled by numba: when they are first called, and kept on disk from then on.

Contract: an array is copied into a part of another element by element. For `more[:n] = rows` numba also compiles a
message with both shapes, whose texts take three seconds in a process.
"""

from __future__ import annotations

import numba as nb

#: A decorator. numba also makes an entry point for callers in C, of which there are none: an eighth of compiling.
loop = nb.njit(cache=True, no_cfunc_wrapper=True)
