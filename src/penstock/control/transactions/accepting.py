"""Accept transactions: draft each on everything accepted before it, check it, and write it to the log."""

from __future__ import annotations

from collections.abc import Callable

from penstock.control.drafting.contents import DueSteps, NotedFailure, PostedScript
from penstock.control.drafting.drafted import DraftContext, Drafted
from penstock.control.drafting.script import NO_COMMANDS, placed_at
from penstock.control.drafting.script_drafting import ScriptDrafting
from penstock.control.drafting.step_drafting import StepDrafting
from penstock.control.engine import ControlEnds
from penstock.control.posted_rows import key_used
from penstock.control.sealed_files import NumberTaken
from penstock.control.transactions.backlog import AcceptedItem, Backlog
from penstock.control.transactions.footprint import footprint_of
from penstock.control.transactions.merging import BoundChange
from penstock.control.transactions.request import Request
from penstock.errors import PenstockError, as_known, log_internal
from penstock.language.commands import AdvanceStream, DeleteRows, InsertRows, PunctuateStream, UpdateRows

#: Commands that append to what was posted to a source.
_OF_ROWS = InsertRows | AdvanceStream | PunctuateStream | UpdateRows | DeleteRows
#: What the system requests itself stands in the log as this.
_OWN = PostedScript(NO_COMMANDS)


class Acceptor:
    """Accepts transactions, by one thread.

    Args:
        context: what is read to draft them.
        backlog: receives what has been accepted, and has the declarations after it.
        write_outcomes: writes the outcomes that could not be written before; raises PenstockError P0601.
    """

    def __init__(self, context: DraftContext, backlog: Backlog, write_outcomes: Callable[[], None]) -> None:
        self._context = context
        self._log, self._backlog = context.log, backlog
        self._write_outcomes = write_outcomes
        self._steps = StepDrafting(context)
        #: Failures of queries that could not be written to the log yet.
        self._unnoted: list[Request] = []

    def take(self, request: Request) -> None:
        """Accept a transaction or refuse it."""
        unnoted, self._unnoted = self._unnoted, []
        for one in [*unnoted, request]:
            try:
                with self._backlog.gate:
                    self._accept(one)
                one.accepted.set()
            except NumberTaken as error:
                # What the other server has accepted is not known here.
                one.refuse(error)
                raise
            except Exception as error:
                if one.accepted.is_set():
                    log_internal(error, "a command has been accepted, and what follows that has failed")
                    continue
                if one.transaction is not None and not one.repeated:
                    # It is in the log, but may be missing in the backlog: the next start applies it.
                    known = as_known(error, "the command has been accepted, and happens at the next start")
                    one.refuse(known)
                    raise ControlEnds(known.message) from error
                if isinstance(one.content, NotedFailure):
                    # A failure has happened, whether or not it can be noted now.
                    self._unnoted.append(one)
                one.refuse(self._refusal(one, error))
            except BaseException as failure:
                one.refuse(failure)
                raise

    def _refusal(self, request: Request, error: Exception) -> PenstockError:
        """Return what answers a request that was not accepted."""
        if isinstance(request.content, DueSteps):
            return self._steps.refused(error)
        if isinstance(error, PenstockError):
            return error
        known = as_known(error, "the statement cannot be bound")
        known.hint = f"nothing has changed; {known.hint}"
        return known

    def _accept(self, request: Request) -> None:
        """Accept a transaction. Raises ScriptErrors and PenstockError, and then nothing has been written."""
        if self._was_posted(request):
            self._backlog.add(AcceptedItem(None, request=request))
            return
        before = self._backlog.ahead
        drafted = self._drafted(request)
        draft, texts = drafted.draft, drafted.texts
        if texts or draft.touched:
            with placed_at(drafted.position):
                self._context.check(draft, before)
                self._context.check_heartbeats(drafted)
        request.bound = drafted.bound
        if drafted.rolled_back:
            request.after = draft.registry
        if drafted.rolled_back or not texts:
            if isinstance(request.content, PostedScript):
                self._backlog.add(AcceptedItem(None, request=request))
            return
        self._write_outcomes()
        change, after = draft.change, draft.registry
        footprint = footprint_of(before.stored, change, draft.bound)
        item = AcceptedItem(None, BoundChange(change, draft.bound), footprint, frozenset(draft.touched), request)
        posted = request.content if isinstance(request.content, PostedScript) else _OWN
        number = self._log.next_number
        try:
            item.transaction = self._log.accept(
                texts, posted.who.name, posted.key, posted.digest, posted.settings, change
            )
        except Exception:
            self._log.withdraw(number)
            raise
        request.transaction = item.transaction
        # From here on it happens: nothing may fail.
        self._backlog.ahead = after
        for number, one in zip(item.transaction.numbers, drafted.changing, strict=False):
            if one.script is not None and isinstance(one.command, _OF_ROWS):
                self._backlog.parsed[number] = one.script
        self._backlog.add(item)
        request.accepted.set()

    def _was_posted(self, request: Request) -> bool:
        """Return whether a transaction was accepted before with the same key. Raises PenstockError P0731."""
        posted = request.content
        if not isinstance(posted, PostedScript) or posted.key is None:
            return False
        known = self._log.with_key(posted.who.name, posted.key)
        if known is None:
            return False
        if known.digest != posted.digest:
            raise key_used(posted.key)
        request.transaction, request.repeated = known, True
        return True

    def _drafted(self, request: Request) -> Drafted:
        """Return the transaction of a request. Raises ScriptErrors and PenstockError."""
        content = request.content
        if isinstance(content, PostedScript):
            return ScriptDrafting(self._context, content).drafted()
        if isinstance(content, DueSteps):
            return self._steps.drafted()
        draft = self._context.draft({})
        draft.fail(content.place, content.error, content.computation)
        return Drafted(draft, [content.text] if draft.change.objects else [])
