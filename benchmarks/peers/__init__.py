"""Queries of the bench by systems that cannot share an environment with Penstock: each side runs in the interpreter of
one of its own, and nothing of Penstock is imported."""
