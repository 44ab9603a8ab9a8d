"""CQL's lexical rules and scalar expressions: a restriction of sqlglot's Spark dialect.

Functions are kept by name (sqlglot would rewrite many of them), because `expressions/` has its own table of functions.
What Spark's grammar has and CQL does not (subscripts, lambdas, placeholders, JSON operators, hints) is removed, so that
it is a syntax error instead of a tree that is ignored. Every node gets its span.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from penstock.language.text import TextSpan
from penstock.types import unknown_type_hint

E = TypeVar("E", bound=exp.Expr)
_NOTHING = Token(TokenType.SENTINEL, "")

#: The bitwise operators, from the loosest binding to the tightest.
_RUNGS = (TokenType.PIPE, TokenType.CARET, TokenType.AMP)
_GONE = ("{%", "{%+", "{%-", "%}", "+%}", "-%}", "{{+", "{{-", "+}}", "-}}", "/*+", "|>")
_COMPARISONS = {*SparkParser.EQUALITY, *SparkParser.COMPARISON}
#: Words that sqlglot takes for DECIMAL, and a declaration refuses.
_NO_TYPES = ("NUMBER", "FIXED", "BIGDECIMAL", "BIGNUMERIC")
#: Access to JSON by key or index, with the result as JSON and as text.
_ARROWS: dict[TokenType, type[exp.Binary]] = {
    TokenType.ARROW: exp.JSONExtract,
    TokenType.DARROW: exp.JSONExtractScalar,
}
#: After these, ANY (...) is part of a comparison, elsewhere an aggregate.
_COMPARED = (TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE)
_COMMANDS = (TokenType.COMMAND, TokenType.SHOW, TokenType.DESCRIBE)

#: What makes a period.
PERIOD_FUNCTIONS = frozenset(("VALID", "PERIOD", "INTERSECTION", "SPAN"))
#: The predicates that stand between two periods; longer ones before those that they begin with.
PERIOD_PREDICATES: tuple[tuple[str, ...], ...] = tuple(
    tuple(line.split())
    for line in (
        "IMMEDIATELY PRECEDES",
        "IMMEDIATELY SUCCEEDS",
        "STARTED BY",
        "FINISHED BY",
        "MET BY",
        "OVERLAPS",
        "CONTAINS",
        "EQUALS",
        "PRECEDES",
        "SUCCEEDS",
        "MEETS",
        "BEFORE",
        "AFTER",
        "STARTS",
        "DURING",
        "FINISHES",
    )
)
_FIRST_WORDS = frozenset(words[0] for words in PERIOD_PREDICATES)


def is_period_text(node: exp.Expr) -> bool:
    """Return whether `node` is written as a period: VALID(s), PERIOD(b, e), INTERSECTION(p, q) or SPAN(p, q)."""
    while isinstance(node, exp.Paren):
        node = node.this
    return isinstance(node, exp.Anonymous) and str(node.this).upper() in PERIOD_FUNCTIONS


class Fault(ParseError):
    """A fault of syntax at `token` (None: the end of the statement).

    expected: what should stand there, empty where that is unknown; message: the whole message, in place of one that is
    made of `expected`.
    """

    def __init__(
        self,
        expected: str,
        token: Token | None,
        code: str = "P0101",
        message: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message or expected)
        self.expected = expected
        self.token = token
        self.code = code
        self.message = message
        self.hint = hint


def span_of(node: exp.Expr) -> TextSpan:
    """Return the span of `node`, as recorded by the parser; for a node that the parser built itself, that of its
    operands.
    """
    noted = node.meta.get("span")
    if isinstance(noted, TextSpan):
        return noted
    spans = [span_of(child) for child in node.iter_expressions()]
    if not spans:
        return TextSpan(0, 0)
    return TextSpan(min(s.start for s in spans), max(s.end for s in spans))


def token_span(token: Token) -> TextSpan:
    return TextSpan(token.start, token.end + 1)


def _closed(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `parse`, checked to stop at the closing bracket: sqlglot accepts a missing one after functions of this
    kind.
    """

    def checked(parser: Any) -> Any:
        node = parse(parser)
        if parser._curr.token_type is not TokenType.R_PAREN:
            parser.raise_error("')'")
        return node

    return checked


class ExpressionParser(SparkParser):
    """Parser of scalar expressions. The clauses around them are in `grammar/`."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: _closed(SparkParser.FUNCTION_PARSERS[name])
        for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION")
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        "CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    # END before a bracket is the function: no CASE goes on with one.
    FUNC_TOKENS: ClassVar[Any] = (SparkParser.FUNC_TOKENS - {TokenType.AND, TokenType.OR}) | {
        TokenType.BEGIN,
        TokenType.END,
    }
    BRACKETS: ClassVar[frozenset[TokenType]] = frozenset()
    PLACEHOLDER_PARSERS: ClassVar[dict[Any, Any]] = {}
    ASSIGNMENT: ClassVar[dict[Any, Any]] = {}
    LAMBDAS: ClassVar[dict[Any, Any]] = {}
    SUBQUERY_PREDICATES: ClassVar[Any] = SparkParser.SUBQUERY_PREDICATES
    COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {
        kind: SparkParser.COLUMN_OPERATORS[kind]
        for kind in (TokenType.DOT, TokenType.DCOLON, TokenType.ARROW, TokenType.DARROW)
    }
    FACTOR: ClassVar[dict[Any, Any]] = {
        kind: SparkParser.FACTOR[kind] for kind in (TokenType.DIV, TokenType.MOD, TokenType.SLASH, TokenType.STAR)
    }
    TERM: ClassVar[dict[Any, Any]] = {kind: SparkParser.TERM[kind] for kind in (TokenType.DASH, TokenType.PLUS)}
    # A raw string is the text that it stands for.
    PRIMARY_PARSERS: ClassVar[dict[Any, Any]] = {
        **SparkParser.PRIMARY_PARSERS,
        TokenType.RAW_STRING: SparkParser.PRIMARY_PARSERS[TokenType.STRING],
    }
    UNARY_PARSERS: ClassVar[dict[Any, Any]] = {
        kind: SparkParser.UNARY_PARSERS[kind]
        for kind in (TokenType.PLUS, TokenType.NOT, TokenType.DASH, TokenType.TILDE)
    }
    RANGE_PARSERS: ClassVar[dict[Any, Any]] = {
        kind: SparkParser.RANGE_PARSERS[kind]
        for kind in (
            TokenType.BETWEEN,
            TokenType.IN,
            TokenType.IS,
            TokenType.LIKE,
            TokenType.ILIKE,
            TokenType.RLIKE,
        )
    }
    INTERVAL_SPANS: ClassVar[bool] = False
    STRICT_CAST: ClassVar[bool] = True
    ADD_JOIN_ON_TRUE: ClassVar[bool] = False

    def reset(self) -> None:
        super().reset()
        #: Whether `$1` stands for a value.
        self.takes_values = False

    def raise_error(self, message: str, token: Token = _NOTHING) -> None:
        here = token or self._curr or None
        if message.lower().startswith("expected type") and here is not None:
            hint = unknown_type_hint(here.text)
            raise Fault("a type", here, "P0207", f"unknown type {here.text}", hint)
        raise Fault(_expected(message), token or self._curr or None)

    def expression(self, instance: E, token: Token | None = None, comments: list[str] | None = None) -> E:
        built = super().expression(instance, token)
        built.comments = None
        spans = [span_of(child) for child in built.iter_expressions()]
        if token is not None:
            if not spans:  # sqlglot may have looked past a name's dot already
                built.meta["span"] = token_span(token)
                return built
            spans.append(token_span(token))
        here = token_span(self._prev)
        start = min((s.start for s in spans if s.end), default=here.start)
        built.meta["span"] = TextSpan(start, max(here.end, start + 1))
        return built

    def _add_comments(self, expression: exp.Expr | None) -> None:
        """Ignore comments, which have no meaning here."""

    def _parse_unary(self) -> exp.Expr | None:
        start = self._curr
        node = super()._parse_unary()
        # -1, NOT x: the operator precedes the operand, whose span expression() uses.
        return self._from(start, node) if isinstance(node, (exp.Neg, exp.Not)) else node

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
        # sqlglot notices only at the end of the expression that the left side of `< 10` is missing.
        if self._curr and self._curr.token_type in _COMPARISONS:
            self.raise_error("an expression", self._curr)
        return super()._parse_equality(parse_is)

    def _parse_range(self, this: exp.Expr | None = None, parse_is: bool = False) -> exp.Expr | None:
        left = super()._parse_range(this, parse_is)
        words = None if left is None else self._period_predicate()
        if left is None or words is None or not (is_period_text(left) or self._period_behind(len(words))):
            return left
        self._advance(len(words))
        right = self._required(self._parse_bitwise())
        call = self.expression(exp.Anonymous(this=" ".join(words), expressions=[left, right]))
        call.meta["span"] = TextSpan(span_of(left).start, span_of(right).end)
        return call

    def _period_predicate(self) -> tuple[str, ...] | None:
        """Return the words of a predicate of periods, if they are next."""
        first = self._curr.text.upper() if self._curr else ""
        if first not in _FIRST_WORDS:
            return None
        return next((words for words in PERIOD_PREDICATES if self._match_text_seq(*words, advance=False)), None)

    def _period_behind(self, steps: int) -> bool:
        """Return whether a period begins `steps` tokens from here."""
        index = self._index + steps
        if index + 1 >= self._tokens_size:
            return False
        opens = self._tokens[index + 1].token_type is TokenType.L_PAREN
        return opens and self._tokens[index].text.upper() in PERIOD_FUNCTIONS

    def _parse_function_call(
        self,
        functions: dict[str, Callable[..., Any]] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        start = self._curr
        node = self._parse_quantified() or super()._parse_function_call(
            functions, anonymous, optional_parens, any_token
        )
        inner = node
        while isinstance(inner, exp.Filter | exp.WithinGroup):  # they begin where the name does
            inner = inner.this
            inner.meta["span"] = TextSpan(start.start, span_of(inner).end)
        return self._from(start, node)

    def _parse_quantified(self) -> exp.Expr | None:
        """Parse EXISTS, ANY, SOME or ALL before a query; right of a comparison, also ANY, SOME or ALL before a list of
        values. sqlglot accepts no brackets around the query or its parts.
        """
        kind = self.SUBQUERY_PREDICATES.get(self._curr.token_type)
        if kind is None or self._next.token_type is not TokenType.L_PAREN:
            return None
        index = self._index
        compared = self._prev.token_type in _COMPARED
        self._advance(2)
        query = self._parse_select()
        if query is None and compared and kind is not exp.Exists:
            values = self._parse_csv(lambda: self._required(self._parse_disjunction()))
            query = self.expression(exp.Tuple(expressions=values))
        if query is None:
            self._retreat(index)
            return None
        if not self._match(TokenType.R_PAREN):
            self.raise_error("')'")
        found: exp.Expr = self.expression(kind(this=query))
        return found

    def _parse_bitwise(self) -> exp.Expr | None:
        """Parse bitwise operators with Spark's precedence: `<<` and `>>` bind tighter than `&`, that than `^`, that
        than `|`; sqlglot has one level.
        """
        return self._ladder(0)

    def _ladder(self, rung: int) -> exp.Expr | None:
        if rung == len(_RUNGS):
            return self._parse_shift()
        this = self._ladder(rung + 1)
        kind = _RUNGS[rung]
        while self._match(kind):
            this = self.expression(self.BITWISE[kind](this=this, expression=self._ladder(rung + 1)))
        return this

    def _parse_shift(self) -> exp.Expr | None:
        this = self._parse_term()
        while True:
            if self._match_pair(TokenType.LT, TokenType.LT):
                this = self.expression(exp.BitwiseLeftShift(this=this, expression=self._parse_term()))
            elif self._match_pair(TokenType.GT, TokenType.GT):
                this = self.expression(exp.BitwiseRightShift(this=this, expression=self._parse_term()))
            elif self._match(TokenType.DQMARK):
                this = self.expression(exp.Coalesce(this=this, expressions=[self._parse_term()]))
            else:
                return this

    def _parse_term(self, parse_mod: bool = True) -> exp.Expr | None:
        """Parse sums and differences; `||` has the same precedence."""
        this = self._parse_factor(parse_mod=parse_mod)
        while True:
            if self._match_set(self.TERM):
                kind = self.TERM[self._prev.token_type]
                this = self.expression(kind(this=this, expression=self._parse_factor(parse_mod=parse_mod)))
            elif self._match(TokenType.DPIPE):
                right = self._parse_factor(parse_mod=parse_mod)
                this = self.expression(exp.DPipe(this=this, expression=right, safe=True))
            else:
                return this

    def _parse_column_ops(self, this: exp.Expr | None) -> exp.Expr | None:
        """Parse `->` and `->>` after a name, with the precedence of its dots; sqlglot would take a whole sum as their
        key.
        """
        this = self._parse_dots(this)
        while this is not None and self._match_set(_ARROWS):
            kind = _ARROWS[self._prev.token_type]
            this = self.expression(kind(this=this, expression=self._required(self._parse_arrow_key())))
        return this

    def _parse_arrow_key(self) -> exp.Expr | None:
        start = self._curr
        if self._match(TokenType.DASH):
            return self._from(start, exp.Neg(this=self._required(self._parse_primary())))
        name = None if (primary := self._parse_primary()) is not None else self._parse_column_reference()
        return primary if name is None else self._parse_dots(name)

    def _parse_dots(self, this: exp.Expr | None) -> exp.Expr | None:
        """Parse what follows a name, up to an arrow."""
        operators = self.COLUMN_OPERATORS
        self.COLUMN_OPERATORS = {k: v for k, v in operators.items() if k not in _ARROWS}  # type: ignore[misc]  # the parser reads the instance first
        try:
            return super()._parse_column_ops(this)
        finally:
            self.COLUMN_OPERATORS = operators  # type: ignore[misc]  # the parser reads the instance first

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        start = self._curr
        node = super()._parse_interval(require_interval, parse_function_unit)
        if node is not None and isinstance(node.this, exp.Parameter):
            self.raise_error("a length", self._next)
        self._from(start, node)
        return node

    def _parse_paren(self) -> exp.Expr | None:
        start = self._curr
        return self._from(start, super()._parse_paren())

    def _parse_primary(self) -> exp.Expr | None:
        start = self._curr
        node = self._parameter() or super()._parse_primary()
        return node if node is None or "span" in node.meta else self._from(start, node)

    def _parameter(self) -> exp.Parameter | None:
        """Parse `$1`, where it stands for a value."""
        if not self.takes_values or not self._next.text.isdecimal() or not self._match(TokenType.PARAMETER):
            return None
        self._advance()
        return exp.Parameter(this=int(self._prev.text))

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        start = self._index
        if self._match_text_seq("WITHIN", "GROUP", "("):
            if not self._match(TokenType.ORDER_BY):
                self.raise_error("ORDER BY")
            self._retreat(start)
        filtered = self._curr.token_type is TokenType.FILTER and self._next.token_type is TokenType.L_PAREN
        if filtered and self._index + 2 < self._tokens_size:
            following = self._tokens[self._index + 2]
            if following.token_type is not TokenType.WHERE:
                self.raise_error("WHERE", following)
        return super()._parse_window(this, alias)

    def _from(self, start: Token, node: exp.Expr | None) -> exp.Expr | None:
        """Return `node` with a span that begins at `start`: at a name or bracket unknown to expression()."""
        if node is not None and start:
            node.meta["span"] = TextSpan(start.start, token_span(self._prev).end)
        return node

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("AND of BETWEEN")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        if not self._match(TokenType.L_PAREN):
            self.raise_error("'('")
        query = self._parse_select()
        if query is not None:
            found = exp.In(this=this, query=self.expression(exp.Subquery(this=query)))
        else:
            found = exp.In(this=this, expressions=self._parse_csv(lambda: self._required(self._parse_disjunction())))
        if not self._match(TokenType.R_PAREN):
            self.raise_error("',' or ')'")
        return self.expression(found)

    def _parse_case(self) -> exp.Expr | None:
        start = self._prev
        operand = None if self._match(TokenType.WHEN, advance=False) else self._required(self._parse_disjunction())
        branches = []
        while self._match(TokenType.WHEN):
            condition = self._required(self._parse_disjunction())
            if not self._match(TokenType.THEN):
                self.raise_error("THEN")
            branches.append(self.expression(exp.If(this=condition, true=self._required(self._parse_disjunction()))))
        if not branches:
            self.raise_error("WHEN")
        default = self._required(self._parse_disjunction()) if self._match(TokenType.ELSE) else None
        if not self._match(TokenType.END):
            self.raise_error("WHEN, ELSE or END")
        return self.expression(exp.Case(this=operand, ifs=branches, default=default), start)

    def _required(self, node: exp.Expr | None) -> exp.Expr:
        if node is None:
            self.raise_error("an expression")
        assert node is not None
        return node

    def _parse_csv(self, parse_method: Callable[[], Any], sep: TokenType = TokenType.COMMA) -> list[Any]:
        # sqlglot accepts `f(a, )` and `IN (1, , 2)`.
        first = parse_method()
        found = [] if first is None else [first]
        while self._match(sep):
            if first is None:
                self.raise_error("an expression", self._prev)
            following = parse_method()
            if following is None:
                self.raise_error("an expression")
            found.append(following)
        return found

    def _parse_type_size(self) -> exp.DataTypeParam | None:
        found = super()._parse_type_size()
        if found is not None and found.args.get("expression") is not None:  # DECIMAL(5 1)
            self.raise_error("',' or ')'", self._prev)
        return found

    def _parse_placeholder(self) -> exp.Expr | None:
        return None

    def _parse_pivots(self) -> list[exp.Pivot] | None:
        return None

    def _parse_table_sample(self, as_modifier: bool = False) -> exp.TableSample | None:
        return None


def _expected(message: str) -> str:
    """Return what was expected, from sqlglot's message; its other messages mean nothing to a user."""
    if match := re.match(r"(?:expecting|expected) (.+)", message, re.IGNORECASE):
        return f"'{match[1]}'" if len(match[1]) <= 2 else match[1]
    if message.startswith("Required"):
        return "an expression"
    return "" if message.startswith(("Invalid", "Failed", "Cannot", "Found")) else message


class Cql(Spark):
    """The dialect: Spark's lexical rules without its commands, hints and templates."""

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        # As in Spark 4, a doubled quote inside a string is the quote.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: kind
            for word, kind in Spark.Tokenizer.KEYWORDS.items()
            if word not in (*_GONE, *_NO_TYPES) and kind not in _COMMANDS
        }

    Parser = ExpressionParser
