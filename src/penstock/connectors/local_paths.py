"""Paths of this machine as options write them, and what tells two of them apart.

A folder can be written in many ways: relative, through `..` or a symbolic link, with `file:` before it, and on some
disks in capitals. `parts_of` is the same for all of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"^file:(?://(?:localhost(?=/))?)?", re.IGNORECASE)


def local_path(text: str) -> Path:
    """The absolute path that an option names, with or without `file://`; nothing on disk is looked at."""
    return Path(_SCHEME.sub("", text, count=1)).expanduser().absolute()


def parts_of(path: Path) -> tuple[str, ...]:
    """The parts of the real path, links followed, in lower case where the disk does not tell cases apart."""
    real = Path(os.path.realpath(path))
    there = next((p for p in (real, *real.parents) if p.exists()), real)
    folded = Path(str(there).swapcase())
    same = folded != there and folded.exists() and folded.samefile(there)
    return tuple(part.casefold() for part in real.parts) if same else real.parts


def blocking_file(path: Path) -> Path | None:
    """What stands in the way of a folder at `path`: it or one of its parents that is there and is no folder."""
    try:
        return next((p for p in (path, *path.parents) if os.path.lexists(p) and not p.is_dir()), None)
    except OSError:  # who may not look will be told when the result is opened
        return None
