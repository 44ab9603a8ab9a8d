"""Reading the text of scripts: from files, and line by line from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.errors import PenstockError
from penstock.loading.modules import look_beside


def read_script(path: Path) -> tuple[str, str]:
    """Return the text of a script and its name in messages. CREATE FUNCTION finds modules in the script's folder.
    Raises PenstockError P0401.
    """
    look_beside(str(Path.cwd() if str(path) == "-" else path.absolute().parent))
    name = "<stdin>" if str(path) == "-" else str(path)
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        is_text = " " in name and name.split()[0].upper() in ("SELECT", "CREATE", "WITH", "INSERT", "EXPLAIN", "SHOW")
        hint = "the argument names a file; a text is read from standard input, with - in its place" if is_text else None
        message = f"cannot read the script {name}: {error.strerror}"
        raise PenstockError("P0401", message, hint=hint, cause=error) from error
    return _decoded(content, name), name


#: What to do about a script in another encoding.
_CONVERTED = "save it as UTF-8, as iconv -f LATIN1 -t UTF-8 does"


def _decoded(data: bytes, name: str) -> str:
    """Return the text of a script. Raises PenstockError P0401 if it is not UTF-8."""
    hint = None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4]:
        reason, hint = "it is UTF-16 or UTF-32 text", "save it as UTF-8"
    else:
        try:
            return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            reason, hint = f"it is not UTF-8 text in line {line}", _CONVERTED
    raise PenstockError("P0401", f"cannot read the script {name}: {reason}", hint=hint)


def read_lines(stream: Iterable[bytes], name: str) -> Iterator[str]:
    """Yield the lines of a script as they come, each with its line end. Raises PenstockError P0401 as `read_script`."""
    for number, line in enumerate(stream, 1):
        try:
            yield _decoded(line, name) if number == 1 else _line(line)
        except UnicodeDecodeError:
            reason = f"it is not UTF-8 text in line {number}"
            raise PenstockError("P0401", f"cannot read the script {name}: {reason}", hint=_CONVERTED) from None


def _line(line: bytes) -> str:
    return line.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
