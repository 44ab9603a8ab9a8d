"""The search path of the modules of a user's functions: beside the script first, then Python's own path.

Contract: needs the standard library alone. A file beside the script with the name of a module of Python's own affects
nothing but the import of the user's modules.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: The folder of the script; empty where there is none.
BESIDE: list[str] = []


def look_beside(folder: str) -> None:
    """Search modules in `folder` first."""
    BESIDE[:] = [folder]
    reachable(folder)


def reachable(folder: str) -> None:
    """Append `folder` to the search path of all imports, behind all folders of this process."""
    if folder not in sys.path:
        sys.path.append(folder)


@contextmanager
def first(folders: Sequence[str]) -> Iterator[None]:
    """Search modules in `folders` first inside the block. Folders of installed packages keep their place: they may
    contain newer versions of modules of Python."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    chosen = [folder for folder in folders if folder not in installed]
    sys.path[:0] = chosen
    try:
        yield
    finally:
        for folder in chosen:
            if folder in sys.path:
                sys.path.remove(folder)


def advice(module: str, error: BaseException) -> str | None:
    """Return the hint for an import of `module` that failed because a module is missing; None for another
    failure."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    top = error.name.partition(".")[0]
    if top != module.partition(".")[0]:
        return f"{module} was found, but not the module {top} that it imports"
    return f"put {top}.py beside the script or its folder into PYTHONPATH; they are searched in this order"


def hidden(module: str, file: str | None, folders: Sequence[str]) -> str | None:
    """Return the hint for a file beside the script that another module of its name, from `file`, hides; None
    for none."""
    for folder in folders:
        beside = Path(folder) / f"{module}.py"
        if beside.is_file() and (file is None or not beside.samefile(file)):
            return f"{beside.name} beside the script is called like a module that Python has already: rename it"
    return None
