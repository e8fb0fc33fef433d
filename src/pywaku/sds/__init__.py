"""Scalable Data Sync (SDS) as a pure state machine."""
