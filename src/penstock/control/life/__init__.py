"""The life of a query: its phases, and what an event makes of each."""
