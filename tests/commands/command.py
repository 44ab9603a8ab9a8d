"""Stands in place of a command: `command.py SOCKET MODULE argument ..`. It imports little, being started for each."""

import array
import os
import signal
import socket
import sys


def main() -> None:
    door = socket.socket(socket.AF_UNIX)
    door.connect(sys.argv[1])
    parts = [os.getcwd(), str(len(sys.argv) - 2), *sys.argv[2:], *(f"{k}={v}" for k, v in os.environ.items())]  # noqa: PTH109
    request = "\0".join(parts).encode("utf-8", "surrogateescape")
    files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    door.sendmsg([len(request).to_bytes(8, "big")], files)
    door.sendall(request)
    replies = door.makefile("r")
    pid = int(replies.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(replies.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


main()
