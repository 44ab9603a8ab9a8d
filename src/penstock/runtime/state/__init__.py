"""Durable state: chunks in files and the manifests that name them, as both engines keep it."""
