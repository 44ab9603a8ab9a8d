"""The files of the page. They are part of the package, need no build, and load nothing from elsewhere.

They are read once: what is not a file of the folder when the server starts is no address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page. media: its type; tag: changes with its content."""

    content: bytes
    media: str
    tag: str


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, PageFile]]:
    for entry in folder.iterdir():
        place = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _below(entry, place)
        elif media := _TYPES.get(entry.name.rpartition(".")[2]):
            content = entry.read_bytes()
            yield place, PageFile(content, media, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _page() -> Mapping[str, PageFile]:
    found = dict(_below(files("penstock.server.page") / "static", "/page"))
    return {**found, "/": found["/page/index.html"], "/favicon.ico": found["/page/icon.svg"]}


#: By path of the address.
PAGE_FILES: Mapping[str, PageFile] = _page()
PAGE_PATHS = frozenset(PAGE_FILES)
