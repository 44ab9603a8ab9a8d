"""The search path of the modules of a user's functions: beside the script first, then Python's own path.

Contract: needs the standard library alone. A file beside the script with the name of a module of Python's own affects
nothing but the import of the user's modules.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

#: The folder of the script; empty where there is none.
BESIDE: list[str] = []
#: Folders that scripts and definitions of other processes were in, which this process would not look in by itself.
_ADDED: list[str] = []
#: By such a folder, the modules that were imported from it, by name: two folders may have modules of one name.
_IMPORTED: dict[str, dict[str, ModuleType]] = {}
#: Names of modules that have been looked at.
_NOTED: set[str] = set()
#: Held while modules of one such folder take the place of those of others.
_EXCHANGE = threading.RLock()


def look_beside(folder: str) -> None:
    """Search modules in `folder` first."""
    BESIDE[:] = [folder]
    reachable(folder)


def reachable(folder: str) -> None:
    """Append the folder of a script, or of a definition of another process, to the search path of all imports, behind
    all folders of this process: a function may import what is beside its module when it is called."""
    if folder not in sys.path:
        sys.path.append(folder)
        _ADDED.append(folder)


def own_path() -> list[str]:
    """Return the search path of all imports without folders of scripts and of definitions of other processes."""
    return [folder for folder in sys.path if folder not in _ADDED]


@contextmanager
def first(folders: Sequence[str], module: str) -> Iterator[None]:
    """Search `module`, and what it imports, in `folders` first inside the block, and in no other folder that a
    definition was in: one that is gone must not be found there. Folders of installed packages keep their place: they
    may contain newer versions of modules of Python."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    chosen = [folder for folder in folders if folder not in installed]
    # A script that was moved with its modules has them beside it.
    moved = folder_of(module) in BESIDE or PathFinder.find_spec(module.partition(".")[0], chosen) is None
    kept = {*folders, *(BESIDE if moved else ())}
    with _without([folder for folder in _ADDED if folder not in kept]):
        sys.path[:0] = chosen
        try:
            yield
        finally:
            for folder in chosen:
                if folder in sys.path:
                    sys.path.remove(folder)


@contextmanager
def beside(code: object) -> Iterator[None]:
    """Import inside the block what the function `code` imports when it is called: from the folder that its module is
    in, and from no folder of another function. For a function in a folder in which this process looks by itself
    nothing changes."""
    folder = _home(_file_of(code), len(_ADDED)) if len(_ADDED) > 1 else None
    with _without([one for one in _ADDED if folder is not None and one != folder]):
        yield


def _file_of(code: object) -> str:
    """Return the file in which a function, or the class of an object, is defined; empty where it is not known."""
    while isinstance(code, partial):
        code = code.func
    methods = (code, *(getattr(type(code), name, None) for name in ("update", "__call__")))
    spaces = (getattr(inspect.unwrap(one), "__globals__", None) for one in methods if callable(one))
    return next((str(space.get("__file__") or "") for space in spaces if space), "")


@lru_cache(maxsize=1024)
def _home(file: str, count: int) -> str | None:
    """Return the folder, of the `count` that were added, which a file is in; None where it is in none."""
    parents = {str(parent) for parent in Path(file).absolute().parents}
    return max((folder for folder in _ADDED[:count] if folder in parents), key=len, default=None)


@contextmanager
def _without(folders: Sequence[str]) -> Iterator[None]:
    """Neither search `folders` inside the block, nor know a module that was imported from there: modules of the other
    ones take their place. Behind the block each name stands for what it did before."""
    if not folders:
        yield
        return
    with _EXCHANGE:
        _note_imported()
        path = list(sys.path)
        sys.path[:] = [one for one in path if one not in folders]
        others = _imported_from(folders)
        hidden_ = {name: module for name, module in others if sys.modules.get(name) is module}
        for name in hidden_:
            del sys.modules[name]
            _NOTED.discard(name)
        for name, module in _imported_from([folder for folder in _ADDED if folder not in folders]):
            sys.modules.setdefault(name, module)
        try:
            yield
        finally:
            _note_imported()
            packages = {name.partition(".")[0] for name in hidden_}
            for name, module in _imported_from([folder for folder in _ADDED if folder not in folders]):
                if name.partition(".")[0] in packages and sys.modules.get(name) is module:
                    del sys.modules[name]
            sys.modules.update(hidden_)
            _NOTED.update(hidden_)
            sys.path.extend(one for one in path if one in folders and one not in sys.path)


def _imported_from(folders: Sequence[str]) -> list[tuple[str, ModuleType]]:
    return [one for folder in folders for one in _IMPORTED.get(folder, {}).items()]


def _note_imported() -> None:
    """Note which modules were imported from folders that were added."""
    for name in sys.modules.keys() - _NOTED:
        folder = folder_of(name)
        if folder in _ADDED:
            _IMPORTED.setdefault(folder, {})[name] = sys.modules[name]
        _NOTED.add(name)


def stranger(module: str, folders: Sequence[str]) -> str | None:
    """Return the folder of the top package of `module`, which has been imported, where that is another one than
    `folders` and that of the script, and one that a definition was in; None where it is not."""
    folder = folder_of(module)
    return folder if folder in _ADDED and folder not in folders and folder not in BESIDE else None


def folder_of(module: str) -> str | None:
    """Return the folder of the top package of a module that has been imported."""
    package = sys.modules.get(module.partition(".")[0])
    file = getattr(package, "__file__", None)
    if file is None:
        # A package without a file of its own has folders.
        return next((str(Path(folder).absolute().parent) for folder in getattr(package, "__path__", ())), None)
    path = Path(file).absolute()
    return str(path.parent.parent if path.name == "__init__.py" else path.parent)


def is_found(module: str) -> bool:
    """Return whether there is a module of a name where the modules of functions are looked for."""
    with first(BESIDE, module):
        try:
            return find_spec(module) is not None
        except (ImportError, ValueError):
            return False


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
