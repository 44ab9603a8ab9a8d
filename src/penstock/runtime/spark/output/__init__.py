"""Delivery of answers to the sinks; rejections and failures."""
