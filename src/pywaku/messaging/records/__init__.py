"""The records of messages (MESSAGING-API, Message Storage)."""
