"""Operators that check what a stream promises."""
