"""Commands to a live system: accepted once, applied in order, restored after a crash.

Why it is made so: docs/decisions/one-log-of-commands.md.
"""
