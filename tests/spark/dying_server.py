"""The command `penstock` in a process that kills itself, and all that it has started, at a point of a command's life.

The point is named in the file `point` in the present folder:

- accepted: the command is in the log;
- applied: everything of the new version is written but the file that makes the change;
- mark: that file is written;
- running: the new version runs, and what became of the command is not noted yet.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.cli.main import main
from penstock.storage import NewFile, replaced_storage
from penstock.storage.local import LocalStorage

#: By point, the file at whose writing it is reached, and whether the file is there then.
POINTS = {
    "accepted": (r"control/\d+\.json$", True),
    "applied": (r"penstock/epochs/\d+\.json$", False),
    "mark": (r"penstock/epochs/\d+\.json$", True),
    "running": (r"control/outcomes-\d+\.json$", False),
}


class DyingStorage(LocalStorage):
    """A storage at whose chosen call the process ends."""

    def write(self, path: Path, data: bytes | memoryview | Callable[[NewFile], Any], **options: Any) -> None:
        named = Path("point")
        pattern, after = POINTS[named.read_text()] if named.exists() else ("(?!)", True)
        reached = re.search(pattern, str(path)) is not None
        if reached and not after:
            os.killpg(0, signal.SIGKILL)
        super().write(path, data, **options)
        if reached:
            os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    with replaced_storage(DyingStorage()):
        main()
