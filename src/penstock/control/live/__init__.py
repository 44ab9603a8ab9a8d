"""The control of a live system: its start, its recovery, and the repair of its declarations."""
