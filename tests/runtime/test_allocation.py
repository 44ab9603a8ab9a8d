"""What is freed goes back to the system, whatever has been freed before and in which thread."""

import ctypes
import gc
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.runtime import allocation
from penstock.runtime.allocation import RETURN_EVERY, FreedMemory, collect_new_only

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


#: Frees arrays of 1 MiB, and prints how many bytes are kept before and after they are returned.
_RELEASES = """
from penstock.runtime.allocation import freed, keep_freed, release
keep_freed()
held = [bytearray(1 << 20) for _ in range(50)]
del held
print(freed())
release()
from pathlib import Path
lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(freed(), int(lines["RssAnon"].split()[0]) << 10)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc's malloc"
)
def test_what_is_kept_for_the_next_query_can_be_returned() -> None:
    done = subprocess.run([sys.executable, "-c", _RELEASES], check=True, stdout=subprocess.PIPE, text=True)
    kept, left, resident = map(int, done.stdout.split())
    assert kept > 45 << 20 and left < 5 << 20 and resident < 45 << 20


#: Begins a server, and prints Arrow's allocator and how many bytes it has allocated of an array, of what is taken from
#: it and of what is read of a compressed stream; and the allocator of a process that the server starts.
_SERVES = """
import subprocess, sys
from pathlib import Path
import pyarrow as pa
from penstock.cli.serve import ServeOptions, serve
class Begun(Exception): pass
def start(options, policy):
    before = pa.system_memory_pool().bytes_allocated()
    table = pa.table({"a": pa.array(range(100_000))})
    half = table.take(pa.array(list(range(50_000))))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_table(table)
    read = pa.ipc.open_stream(sink.getvalue()).read_all()
    held = pa.system_memory_pool().bytes_allocated() - before
    other = "import pyarrow as pa; print(pa.default_memory_pool().backend_name)"
    theirs = subprocess.run([sys.executable, "-c", other], check=True, stdout=subprocess.PIPE, text=True).stdout
    print(pa.default_memory_pool().backend_name, held, theirs.strip(), table.nbytes + half.nbytes + read.nbytes)
    raise Begun
folder = Path(sys.argv[1])
try:
    serve(ServeOptions(folder / "state", "127.0.0.1:0", token_file=folder / "tokens.json"), start)
except Begun:
    pass
"""


def test_the_arrow_of_a_server_allocates_with_the_c_library(tmp_path: Path) -> None:
    """What threads have freed would stay with each of them; a process that the server starts has what it would have."""
    command = [sys.executable, "-c", _SERVES, str(tmp_path)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    own, held, theirs, least = done.stdout.split()
    assert own == "system" and int(held) >= int(least) == 2_000_000
    assert (theirs == "system") == (os.environ.get("ARROW_DEFAULT_MEMORY_POOL") == "system")


def full_collections(made: int) -> int:
    """Return how often Python looks among all objects while so many live for a while and are left as cycles."""
    seen: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop" and about["generation"] == 2:
            seen.append(about["collected"])

    lasting: list[list[object]] = []
    gc.callbacks.append(note)
    try:
        for _ in range(made):
            one: list[object] = []
            one.append(one)
            lasting.append(one)
            if len(lasting) == 5_000:
                lasting.clear()
    finally:
        gc.callbacks.remove(note)
    return len(seen)


def test_cycles_go_soon_beside_much_that_stays() -> None:
    # Of a server; those of tests are larger.
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    stays = [[n] for n in range(800_000)]
    gc.collect()
    try:
        before = full_collections(150_000)
        collect_new_only()
        after = full_collections(150_000)
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    assert before == 0 and after >= 1
    assert len(stays) == 800_000


#: Has a thread free arrays of 4 MiB that lie in its heap, each before a piece that stays; prints the resident bytes
#: before and after.
_HOLES = """
import ctypes, threading
from pathlib import Path
from penstock.runtime.allocation import RETURN_EVERY, FreedMemory
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
# Arrays up to that size lie in heaps from now on.
library.free(library.malloc(16 << 20))
def holes():
    arrays = []
    for _ in range(8):
        arrays.append(library.malloc(4 << 20))
        library.memset(arrays[-1], 1, 4 << 20)
        library.malloc(100)
    for one in arrays:
        library.free(one)
thread = threading.Thread(target=holes)
thread.start()
thread.join()
def resident():
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) << 10
now = [0.0]
freed = FreedMemory(lambda: now[0])
now[0] = RETURN_EVERY
before = resident()
assert freed.look()
print(before, resident())
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc's malloc"
)
def test_holes_in_the_heap_of_any_thread_are_returned() -> None:
    done = subprocess.run([sys.executable, "-c", _HOLES], check=True, stdout=subprocess.PIPE, text=True)
    before, after = map(int, done.stdout.split())
    assert before - after > 30 << 20


def test_freed_memory_is_returned_once_a_minute_and_less_often_where_that_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, takes = [0.0], [0.001]

    def release() -> None:
        now[0] += takes[0]

    monkeypatch.setattr(allocation, "release", release)
    freed = FreedMemory(lambda: now[0])
    returned = []
    for _ in range(3_000):
        now[0] += 0.5
        if freed.look():
            returned.append(now[0])
            takes[0] = 0.001 if len(returned) < 4 else 0.3
    pauses = [after - before for before, after in pairwise(returned)]
    assert pauses[:3] == pytest.approx([RETURN_EVERY] * 3, abs=1)
    assert pauses[4:] and pauses[4:] == pytest.approx([300] * len(pauses[4:]), abs=2)
