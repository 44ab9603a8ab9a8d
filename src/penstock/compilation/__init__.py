"""How loops are compiled by numba: when they are first called, and kept on disk from then on.

Contract: an array is copied into a part of another element by element. For `more[:n] = rows` numba also compiles a
message with both shapes, whose texts take three seconds in a process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numba as nb


def kept_in(environ: Mapping[str, str]) -> str:
    """Return the folder of compiled loops where PENSTOCK_CACHE names one, else an empty text: numba then keeps them
    beside the modules, or for this user where it may not write there.

    Each version has its own: numba compares the source of a loop alone, not of the loops that it calls.
    """
    place = environ.get("PENSTOCK_CACHE")
    # Not imported: the package itself imports what imports this module.
    version = sys.modules["penstock"].__version__
    return str(Path(place) / f"loops-{version}") if place else ""


if not nb.config.CACHE_DIR:
    nb.config.CACHE_DIR = kept_in(os.environ)

#: A decorator. numba also makes an entry point for callers in C, of which there are none: an eighth of compiling.
loop = nb.njit(cache=True, no_cfunc_wrapper=True)
