"""The wire room: bytes on the wire, one small module per protocol.

Each module has value types and, for each of them, `encode_…` and `decode_…`. Encoding is deterministic
(fields in ascending order). Decoding skips unknown fields, lets the last value of a field win, checks the
limits that the specs state, and yields a value or raises `pywaku.errors.DecodeError`, nothing else.
"""
