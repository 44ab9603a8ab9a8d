"""Secrets of connectors: from the option itself, from the environment, or from a file.

`password 'text'` is stored in the script, and so in the checkpoint of a run; `password_env 'NAME'` and `password_file
'path'` only name its location, and it is fetched where it is used: by every process that opens the connector. This
module never prints a secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from penstock.connectors.local_paths import local_path
from penstock.connectors.options import TEXT, Option, Options, ValueType
from penstock.errors import PenstockError
from penstock.redaction import is_secret, redacted, redacted_text

__all__ = ["FORMS", "forms", "is_secret", "redacted", "redacted_text", "secret", "secret_options", "with_secrets"]

#: Suffixes of a secret's key for options that name its location.
FORMS = ("_env", "_file")


def forms(keys: Iterable[str]) -> tuple[str, ...]:
    """Return each of `keys` and the two options that name its location instead."""
    return tuple(key + form for key in keys for form in ("", *FORMS))


def secret_options(
    name: str, help_: str, type_: ValueType[str] = TEXT, formats: tuple[str, ...] = ()
) -> tuple[Option[str], ...]:
    """Return the option `name` and the two beside it that say where its value lies."""
    return (
        Option(name, type_, help_, formats=formats),
        Option(f"{name}_env", TEXT, f"the environment variable that holds `{name}`", formats=formats),
        Option(f"{name}_file", TEXT, f"the file that holds `{name}`", formats=formats),
    )


def secret(options: Options, key: str) -> str | None:
    """Return the secret `key` of a connector; None where none of its forms is set.

    Raises:
        PenstockError: P0208, several forms are set; P0409, the secret cannot be fetched.
    """
    set_keys = [key + form for form in ("", *FORMS) if options.has(key + form)]
    if len(set_keys) > 1:
        raise PenstockError("P0208", f"{options.owner}: of the options {' and '.join(set_keys)} set only one")
    if not set_keys:
        return None
    value = options.text(set_keys[0])
    if set_keys[0] == key:
        return value
    return _of_environment(options, value) if set_keys[0].endswith("_env") else _of_file(options, value)


def with_secrets(options: Options, keys: Iterable[str]) -> Options:
    """Return the options with the values of the secrets `keys`, in whichever form they were set.

    Only for immediate use: the result must not be stored, printed or sent. Raises like `secret`.
    """
    pairs = dict(options.pairs)
    for key in keys:
        value = secret(options, key)
        for form in forms([key]):
            pairs.pop(form, None)
        if value is not None:
            pairs[key] = value
    return replace(options, pairs=tuple(pairs.items()))


def _of_environment(options: Options, name: str) -> str:
    value = os.environ.get(name)
    if not value:
        hint = "set it for every process of the run, or use a file"
        raise PenstockError("P0409", f"{options.owner}: the environment has no variable {name}", hint=hint)
    return value


def _of_file(options: Options, path: str) -> str:
    file = local_path(path)
    try:
        value = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PenstockError("P0409", f"{options.owner}: no secret in {path}: {reason}") from None
    if not value:
        raise PenstockError("P0409", f"{options.owner}: no secret in {path}: it is empty")
    return value
