"""Transactions on their way: bound and accepted by one thread, applied by another one (`control.py`)."""
