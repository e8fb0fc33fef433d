"""Reliable channels."""
