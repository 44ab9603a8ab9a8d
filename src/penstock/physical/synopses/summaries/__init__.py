"""Summaries of streams: how often each value came lately, by zones of time that grow coarser with age."""
