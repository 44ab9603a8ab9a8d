"""Calls by name: the functions of the language, users' own, and which of them are volatile."""
