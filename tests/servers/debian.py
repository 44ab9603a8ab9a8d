"""Programs that tests need, installed as root on Debian where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def install(package: str) -> None:
    """Install a package if this can be done here; what has come of it is looked at afterwards."""
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists() or not shutil.which("apt-get"):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    wanted = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
    for command in (wanted, ["apt-get", "update", "-q"], wanted):
        done = subprocess.run(command, capture_output=True, env=environment, stdin=subprocess.DEVNULL)
        if command is wanted and done.returncode == 0:
            return
