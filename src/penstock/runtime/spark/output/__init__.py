"""Delivery of answers to the sinks; rejections, failures and totals."""
