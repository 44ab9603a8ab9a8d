"""Large arrays go back to the system when they are freed, whatever has been freed before."""

import ctypes
import subprocess
import sys

import pytest

#: Frees an array of 16 MiB, after which glibc would keep the next ones of that size at the heap, and takes another with
#: one behind it that stays; prints how many bytes lie outside of the heap. <malloc.h>: struct mallinfo2, member 4.
_KEEPS = """
import ctypes, sys
from penstock.runtime.allocation import give_back
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
class Info(ctypes.Structure):
    _fields_ = [(f"f{n}", ctypes.c_size_t) for n in range(10)]
library.mallinfo2.restype = Info
if sys.argv[1] == "yes":
    assert give_back()
library.free(library.malloc(16 << 20))
before = library.mallinfo2().f4
library.malloc(8 << 20)
print(library.mallinfo2().f4 - before)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc's malloc"
)
def test_large_arrays_stay_outside_of_the_heap() -> None:
    outside = {}
    for fixed in ("yes", "no"):
        done = subprocess.run([sys.executable, "-c", _KEEPS, fixed], check=True, stdout=subprocess.PIPE, text=True)
        outside[fixed] = int(done.stdout)
    assert outside["yes"] >= 8 << 20
    assert outside["no"] == 0
