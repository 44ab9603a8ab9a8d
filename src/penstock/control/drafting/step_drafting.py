"""Draft the steps of queries that are due: of changes of plans, and of what waits for rows (`life/due_steps.py`)."""

from __future__ import annotations

from penstock.algebra.properties.need import AwaitedRows
from penstock.control.drafting.draft import Draft
from penstock.control.drafting.drafted import DraftContext, Drafted
from penstock.control.drafting.versions import queried
from penstock.control.life.due_steps import EditStep, HoldStep, due_holds, due_steps
from penstock.errors import PenstockError, as_known


class StepDrafting:
    """Drafts steps, again and again: what is impossible is not tried a second time, and an error is logged once."""

    def __init__(self, context: DraftContext) -> None:
        self._context = context
        #: Queries with the choices of a plan to which they cannot change.
        self._impossible: set[tuple[int, str]] = set()
        #: The query and the choices with which the change of a plan begins that was drafted last.
        self._begins: tuple[int, str] | None = None
        #: By place of what is computed beside a query, the command with which it was to take over last.
        self._take_overs: dict[int, int] = {}
        #: By place of a query that has waited for rows, the command with which it was to begin.
        self._begun: dict[int, int] = {}
        #: By number of a query, the unforeseen error of the last attempt to find out what it waits for.
        self._unknown: dict[int, str] = {}
        #: Such an error with which steps were refused last.
        self._last_error = ""

    def drafted(self) -> Drafted:
        """Return the transaction of the steps that are due, between two others. A change of a plan that begins is
        alone, since it may be impossible."""
        context, self._begins = self._context, None
        drafted = Drafted(context.draft({}))
        if not context.is_idle():
            return drafted
        for step in due_steps(context.ahead(), context.engine.version()):
            if step.beside is not None:
                self._take(step, drafted)
            elif not drafted.texts and self._begin(step, drafted):
                return drafted
        for hold in due_holds(context.ahead(), self._awaited):
            self._take_hold(hold, drafted)
        return drafted

    def refused(self, error: Exception) -> PenstockError:
        """Return why the steps drafted last have been refused, as it is answered."""
        if self._begins is not None:
            self._impossible.add(self._begins)
        if isinstance(error, PenstockError):
            return error
        text = repr(error)
        if self._last_error == text:
            # Steps are looked for after each batch.
            return PenstockError("P0601", text)
        self._last_error = text
        return as_known(error, "a step of a query cannot be taken")

    def _number(self, drafted: Drafted) -> int:
        return self._context.log.next_number + len(drafted.texts)

    def _begin(self, step: EditStep, drafted: Drafted) -> bool:
        """Add the beginning of a change of a plan; return whether it was possible up to now."""
        one = drafted.draft.stored.objects[step.id]
        begins = one.id, one.wished_plan
        if begins in self._impossible:
            return False
        self._begins = begins
        text = drafted.draft.take_step(self._number(drafted), step)
        if text:
            drafted.texts.append(text)
        return True

    def _take(self, step: EditStep, drafted: Drafted) -> None:
        """Add a step of what is computed beside a query."""
        assert step.beside is not None, "it has begun"
        draft, number, place = drafted.draft, self._number(drafted), step.beside.place
        one = draft.stored.objects[step.id]
        error = self._failed_step(place)
        if error is not None:
            draft.give_up(one, error)
            drafted.texts.append(f"QUERY {one.name}: CANNOT CHANGE")
        elif text := draft.take_step(number, step):
            places = {each.place for _, query in draft.stored.queries for each in query.computed}
            self._take_overs = {place: n for place, n in self._take_overs.items() if place in places}
            self._take_overs[place] = number
            drafted.texts.append(text)

    def _failed_step(self, place: int) -> PenstockError | None:
        """Return why what is computed at a place beside a query cannot take over, where that is for good."""
        outcome = self._context.log.outcome(self._take_overs.get(place, 0))
        if outcome is None or outcome.code != "P0703":
            return None
        return PenstockError(outcome.code, outcome.message or "")

    def _awaited(self, id_: int, place: int) -> AwaitedRows | None:
        """Return what waits for rows at a place of a query, and for which ones."""
        context = self._context
        one = context.ahead().stored.objects[id_]
        assert one.query is not None, "a query waits"
        try:
            found = one.query.at(place)
            query = None if found is None else queried(one, found, context.ahead(), context.posted)
            return None if query is None else context.engine.awaited(query)
        except Exception as error:
            # It goes on waiting, and keeps no other one from its step.
            if self._unknown.get(id_) != (unknown := repr(error)):
                self._unknown[id_] = unknown
                as_known(error, f"what query {one.name} waits for cannot be found out")
            return None

    def _take_hold(self, step: HoldStep, drafted: Drafted) -> None:
        """Add a step of what waits for rows. A query that cannot begin fails, and a change of one is given up."""
        draft, number, place = drafted.draft, self._number(drafted), step.place
        one = draft.stored.objects[step.id]
        assert one.query is not None, "a query waits"
        failed = self._context.log.outcomes.get(self._begun.pop(place, 0))
        error = None if failed is None or not failed.code else PenstockError(failed.code, failed.message or "")
        text = "" if error is not None else draft.take_hold_step(number, step)
        if text and step.tick is not None:
            self._begun[place] = number
            error = self._obstacle(draft)
        if error is not None:
            draft.fail(place, error)
            text = f"QUERY {one.name}: CANNOT {'BEGIN' if place == one.query.place else 'CHANGE'}"
        if text:
            drafted.texts.append(text)

    def _obstacle(self, draft: Draft) -> PenstockError | None:
        """Return why the engine cannot do what has been drafted, None where it can."""
        try:
            self._context.engine.check(self._context.part(draft))
        except Exception as error:
            return as_known(error, "the query cannot begin")
        return None
