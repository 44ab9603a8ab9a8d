"""Metrics, progress, reports and the detection of growth."""
