"""`penstock` in a process that tells of its memory: python -m benchmarks.heap ADDRESS ARGUMENT...

ADDRESS is a socket in the file system. Who connects gets the figures at that moment, as JSON: `resident` memory, and
what of it is not pages of files (`anonymous`), which the system takes back when it needs them; by the C library, bytes
in `used` pieces and `free` ones between them; by Arrow, bytes in buffers (`arrow`); of Python, the number of small
`blocks`, and the bytes of objects (`objects`) where PYTHONTRACEMALLOC has it trace them.
"""

from __future__ import annotations

import ctypes
import gc
import json
import socket
import sys
import threading
import tracemalloc
from pathlib import Path
from statistics import linear_regression


class _MallocInfo(ctypes.Structure):
    """<malloc.h>"""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "used", "free", "keepcost")
    ]


def resident() -> dict[str, int]:
    """Return the resident memory of this process in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        name: int(lines[line].split()[0]) * 1024 for name, line in (("resident", "VmRSS"), ("anonymous", "RssAnon"))
    }


def figures() -> dict[str, int]:
    """Return the figures of this process, after a collection of garbage."""
    import pyarrow as pa

    gc.collect()
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = _MallocInfo
    found = library.mallinfo2()
    traced = {"objects": tracemalloc.get_traced_memory()[0]} if tracemalloc.is_tracing() else {}
    return {
        **resident(),
        "used": int(found.used + found.hblkhd),
        "free": int(found.free),
        "arrow": pa.total_allocated_bytes(),
        "blocks": sys.getallocatedblocks(),
        **traced,
    }


def asked(address: Path) -> dict[str, int]:
    """Return the figures of the process at an address."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(address))
        with connection.makefile("rb") as file:
            told: dict[str, int] = json.loads(file.read())
            return told


def growth(counts: list[int], looks: list[dict[str, int]]) -> dict[str, int]:
    """Return by figure what was added for each of `counts`, by linear regression over the second half of the looks:
    while caches and windows fill, memory grows too."""
    half = len(looks) // 2
    return {
        name: round(linear_regression(counts[half:], [look[name] for look in looks[half:]]).slope) for name in looks[0]
    }


def _tell(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(json.dumps(figures()).encode())


def main() -> None:
    from penstock.cli.main import main as command

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sys.argv.pop(1))
    listener.listen()
    threading.Thread(target=_tell, args=(listener,), name="heap", daemon=True).start()
    sys.argv[0] = "penstock"
    command()


if __name__ == "__main__":
    main()
