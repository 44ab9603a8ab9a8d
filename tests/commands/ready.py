"""Has loaded all that a command needs, and forks for every one: `ready.py SOCKET`, until its standard input ends."""

from __future__ import annotations

import gc
import os
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from penstock.loading import lazy_pandas


def main() -> None:
    load()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(sys.argv[1])
    listening.listen(64)
    gc.collect()
    gc.freeze()  # so that forks do not copy the pages of all that is loaded
    os.write(1, b"ready\n")
    while True:
        if 0 in select.select([0, listening], [], [])[0]:
            return
        asking, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            command = watched(asking)
            if command is not None:
                become(*command)
            return
        asking.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def load() -> None:
    """Import what most commands do, and read the compiled loops that most queries call."""
    lazy_pandas.postpone()
    import penstock.cli.main
    import penstock.cli.shared.querying
    import penstock.cli.shell.start
    from penstock.results.select_process import load_operators

    with suppress(ImportError):
        import penstock.cli.shell.terminal  # noqa: F401
    load_operators()
    del sys.modules["penstock.results.select_process"]  # a module that is run is not imported before


def watched(asking: socket.socket) -> tuple[list[bytes], list[int]] | None:
    """Fork once more: the child returns what its command is, the parent reports its end, and ends it where whoever
    asks is gone."""
    head, files, _, _ = socket.recv_fds(asking, 8, 3)
    request = b""
    while len(request) < int.from_bytes(head, "big"):
        request += asking.recv(1 << 20)
    command = os.fork()
    if command == 0:
        asking.close()
        return request.split(b"\0"), files
    for file in files:
        os.close(file)
    asking.sendall(b"%d\n" % command)
    ended = os.pidfd_open(command)
    if ended not in select.select([ended, asking], [], [])[0]:
        os.kill(command, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    with suppress(OSError):
        asking.sendall(b"%d\n" % code)
    os._exit(0)


def become(request: list[bytes], files: list[int]) -> None:
    """Run the command as `python -m MODULE argument ..` does."""
    folder, count, module, *rest = request
    arguments, environment = rest[: int(count) - 1], rest[int(count) - 1 :]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a shell have it ignored
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(pair.split(b"=", 1) for pair in environment)  # type: ignore[misc]
    name, _, errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        mode = "w" if number else "r"
        handling = "backslashreplace" if number == 2 else errors or "strict"
        buffering = 1 if number == 2 or os.isatty(number) else -1
        fresh = open(number, mode, buffering, encoding=name or "utf-8", errors=handling, closefd=False)  # noqa: SIM115
        setattr(sys, stream.name.strip("<>"), fresh)
    sys.path[0] = str(Path.cwd())
    sys.path[1:1] = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p not in sys.path]
    sys.argv = [module.decode(), *(os.fsdecode(argument) for argument in arguments)]
    runpy.run_module(module.decode(), run_name="__main__", alter_sys=True)


main()
