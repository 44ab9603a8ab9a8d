"""Spark on this machine is reached from this machine alone, and only by who knows its secret."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.spark.worker.tasks import wake

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who listens where")

#: 127.0.0.1, the same as an IPv6 address, and ::1, as /proc/net writes them.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
_LISTENING = "0A"


def family(root: int) -> list[int]:
    """A process and all that it has started."""
    parents: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        parents.setdefault(parent, []).append(int(place.parent.name))
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return found


def told(process: int, name: str) -> bytes:
    """A file of a process in /proc, empty where the process is gone meanwhile."""
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except OSError:
        return b""


def sockets(process: int) -> set[str]:
    found = set()
    for place in Path(f"/proc/{process}/fd").glob("*"):
        try:
            name = str(place.readlink())
        except OSError:
            continue
        if name.startswith("socket:["):
            found.add(name[len("socket:[") : -1])
    return found


def listening(inodes: set[str]) -> list[str]:
    """The addresses at which these sockets listen."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return [line[1].partition(":")[0] for line in lines if line[3] == _LISTENING and line[9] in inodes]


def test_all_ports_are_this_machines_own_and_the_secret_is_nowhere_to_be_read(spark: Any) -> None:
    assert spark.range(0, 4, 1, 2).mapInArrow(wake, "id long").toArrow().num_rows == 4
    processes = family(os.getpid())
    assert len(processes) > 2, "the JVM and the Python daemon"
    found = listening(set().union(*map(sockets, processes)))
    assert found
    assert set(found) <= LOOPBACK
    context = spark.sparkContext
    assert context.getConf().get("spark.authenticate") == "true"
    hadoop = context._jvm.org.apache.hadoop
    credentials = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secret = bytes(credentials.getSecretKey(hadoop.io.Text("sparkCookie"))).decode()
    assert len(secret) >= 16
    read = [text for process in processes for name in ("cmdline", "environ") if (text := told(process, name))]
    assert len(read) >= 4, "those of this process and of the JVM at least"
    assert not [text for text in read if secret.encode() in text]
