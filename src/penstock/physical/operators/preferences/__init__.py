"""WITH PREFERENCE: entries that wait, and the compiled loop that works on them in the order of their keys."""
