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
#: Folders that definitions of other processes were in, which this process would not look in by itself.
_SHIPPED: list[str] = []


def look_beside(folder: str) -> None:
    """Search modules in `folder` first."""
    BESIDE[:] = [folder]
    if folder in _SHIPPED:
        _SHIPPED.remove(folder)
    if folder not in sys.path:
        sys.path.append(folder)


def reachable(folder: str) -> None:
    """Append the folder of a definition of another process to the search path of all imports, behind all folders of
    this process: a function may import what is beside its module when it is called."""
    if folder not in sys.path:
        sys.path.append(folder)
        _SHIPPED.append(folder)


def own_path() -> list[str]:
    """Return the search path of all imports without folders of definitions of other processes."""
    return [folder for folder in sys.path if folder not in _SHIPPED]


@contextmanager
def first(folders: Sequence[str]) -> Iterator[None]:
    """Search modules in `folders` first inside the block, and in no other folder that a definition of another process
    was in: one that is gone must not be found there. Folders of installed packages keep their place: they may contain
    newer versions of modules of Python."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    chosen = [folder for folder in folders if folder not in installed]
    others = [folder for folder in _SHIPPED if folder not in folders and folder in sys.path]
    for folder in others:
        sys.path.remove(folder)
    sys.path[:0] = chosen
    try:
        yield
    finally:
        sys.path.extend(folder for folder in others if folder not in sys.path)
        for folder in chosen:
            if folder in sys.path:
                sys.path.remove(folder)


def stranger(module: str, folders: Sequence[str]) -> str | None:
    """Return the folder of the top package of `module`, which has been imported, where that is another one than
    `folders`, and one that a definition of another process was in; None where it is not."""
    folder = folder_of(module)
    return folder if folder in _SHIPPED and folder not in folders else None


def folder_of(module: str) -> str | None:
    """Return the folder of the top package of a module that has been imported."""
    file = getattr(sys.modules.get(module.partition(".")[0]), "__file__", None)
    if file is None:
        return None
    path = Path(file).absolute()
    return str(path.parent.parent if path.name == "__init__.py" else path.parent)


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
