"""Names of files derived from names that users choose: of sources, queries, columns. A user's text is never itself a
file name.

Contract: two different texts never get the same name, even where the file system does not distinguish upper and lower
case, or the forms of Unicode. A name consists of lower-case ASCII letters, digits, `_` and `-`, begins with a letter or
a digit (readers of folders skip names that begin with `_`), and is at most 57 characters long. A text of at most 40
such characters that begins with a letter and has no `-` is its own name.
"""

from __future__ import annotations

import hashlib
import re

_PLAIN = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OTHER = re.compile(r"[^a-z0-9_]+")
_SHOWN = 40
_DIGEST = 16


def file_name(text: str) -> str:
    """Return the file name for `text`.

    `flights` gives `flights`; `a/b` gives `a_b-` and 16 hexadecimal digits of a digest of the whole text.
    """
    if _PLAIN.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    shown = _OTHER.sub("_", text.lower())[:_SHOWN].strip("_")
    return f"{shown or 'name'}-{digest}"
