"""Paths of this machine as options write them, and their comparison.

A folder can be written in many ways: relative, through `..` or a symbolic link, with the prefix `file:`, and on some
disks in capitals. `parts_of` is the same for all of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_SCHEME = re.compile(r"^file:(?://(?:localhost(?=/))?)?", re.IGNORECASE)


def local_path(text: str) -> Path:
    """Return the absolute path that an option names, with or without `file://`; the disk is not accessed."""
    return Path(_SCHEME.sub("", text, count=1)).expanduser().absolute()


def parts_of(path: Path) -> tuple[str, ...]:
    """Return the parts of the real path, links followed, in lower case where the disk ignores case."""
    real = Path(os.path.realpath(path))
    existing = next((p for p in (real, *real.parents) if p.exists()), real)
    swapped_case = Path(str(existing).swapcase())
    ignores_case = swapped_case != existing and swapped_case.exists() and swapped_case.samefile(existing)
    return tuple(part.casefold() for part in real.parts) if ignores_case else real.parts


def blocking_file(path: Path) -> Path | None:
    """Return the file that prevents a folder at `path`: it or one of its parents that exists and is not a folder."""
    try:
        return next((p for p in (path, *path.parents) if os.path.lexists(p) and not p.is_dir()), None)
    except OSError:  # without permission to look, opening the result will raise the error
        return None
