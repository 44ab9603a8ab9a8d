"""A plan as text that a notebook draws."""

from __future__ import annotations

from collections.abc import Callable


class PlanText(str):
    """The text of a plan. A notebook shows its drawing, an SVG document without scripts whose texts are escaped."""

    __slots__ = ("_draw",)
    _draw: Callable[[], str]

    @classmethod
    def of(cls, text: str, draw: Callable[[], str]) -> PlanText:
        """Return a text with its drawing. draw: returns an SVG document; called when it is shown."""
        made = cls(text)
        made._draw = draw
        return made

    def _repr_svg_(self) -> str:
        return self._draw()


def explained(form: str, explain: Callable[[str], str]) -> str:
    """Return what `explain` returns for a form; as text, with its drawing."""
    text = explain(form)
    return PlanText.of(text, lambda: explain("drawn")) if form == "text" else text
