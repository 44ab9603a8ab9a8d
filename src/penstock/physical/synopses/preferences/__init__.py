"""The state of WITH PREFERENCE: entries that wait by key, and the numbered elements that they look up."""
