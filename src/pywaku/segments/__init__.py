"""Segmentation of large payloads, with Reed-Solomon parity, as a pure state machine."""
