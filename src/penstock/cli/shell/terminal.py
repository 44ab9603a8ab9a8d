"""The terminal of the shell: a prompt with history and completion, by prompt_toolkit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from penstock.cli.shell.commands import command_of
from penstock.cli.shell.completion import candidates
from penstock.cli.shell.declared import Declared
from penstock.language.quotes import is_blank, statement_end
from penstock.redaction import redacted_text

_PROMPT, _MORE = "penstock> ", "      ... "


class Terminal:
    """Reads statements from a person. declared: returns what is declared."""

    def __init__(self, declared: Callable[[], Declared]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=_NameCompleter(declared),
            complete_while_typing=False,
            # A server may take long to answer what is declared.
            complete_in_thread=True,
            multiline=Condition(lambda: not is_complete(self._session.default_buffer.text)),
            prompt_continuation=_MORE,
        )

    def read(self) -> str:
        """Return whole statements, or a command. Raises EOFError at Ctrl-D, KeyboardInterrupt at Ctrl-C."""
        return self._session.prompt(_PROMPT)


def is_complete(text: str) -> bool:
    """Return whether Enter ends the input: it is empty, a command, or ends with a semicolon outside quotes."""
    if is_blank(text) or command_of(text) is not None:
        return True
    end = start = 0
    while (next_end := statement_end(text, start)) is not None:
        end = start = next_end
    return is_blank(text[end:])


def history_file() -> Path:
    """Return the place of the history: $XDG_STATE_HOME/penstock/history, by default below ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "penstock" / "history"


class _PrivateHistory(FileHistory):
    """A history file that only its owner reads, without statements that hold a secret."""

    def store_string(self, string: str) -> None:
        if redacted_text(string) == string:
            super().store_string(string)


def _history() -> History:
    """Return the history; one that ends with the process where its file cannot be written."""
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
        path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return _PrivateHistory(str(path))


class _NameCompleter(Completer):
    def __init__(self, declared: Callable[[], Declared]) -> None:
        self._declared = declared

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for candidate in candidates(document.text_before_cursor, self._declared()):
            yield Completion(candidate.text, -candidate.length, display_meta=candidate.what)
