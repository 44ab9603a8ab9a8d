"""Synopses of promises: when values of streams are closed (docs/promises.md)."""
