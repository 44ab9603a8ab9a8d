"""Where the modules of a user's functions are looked for: beside the script first, then where Python looks.

Contract: needs the standard library alone. A file beside the script that is called like a module of Python's own
disturbs nothing but the import of the user's modules.
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
    """Have modules looked for in `folder` first."""
    BESIDE[:] = [folder]
    reachable(folder)


def reachable(folder: str) -> None:
    """Have what is imported at any time found in `folder` too, behind all that this process has itself."""
    if folder not in sys.path:
        sys.path.append(folder)


@contextmanager
def first(folders: Sequence[str]) -> Iterator[None]:
    """While inside, modules are looked for in `folders` first. Folders of installed packages stay where they are: they
    may hold what Python has a newer version of."""
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
    """What to do where importing `module` failed for want of a module."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    top = error.name.partition(".")[0]
    if top != module.partition(".")[0]:
        return f"{module} was found, but not the module {top} that it imports"
    return f"put {top}.py beside the script or its folder into PYTHONPATH; they are searched in this order"


def hidden(module: str, file: str | None, folders: Sequence[str]) -> str | None:
    """What to do where a file beside the script was meant and another module of its name, from `file`, is taken."""
    for folder in folders:
        beside = Path(folder) / f"{module}.py"
        if beside.is_file() and (file is None or not beside.samefile(file)):
            return f"{beside.name} beside the script is called like a module that Python has already: rename it"
    return None
