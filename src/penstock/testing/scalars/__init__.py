"""Values, dates, and calls of user code, computed naively."""
