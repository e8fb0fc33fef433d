"""When to request and when to respond, and who responds (SDS-R: Determine T_req, T_resp, response group)."""

from __future__ import annotations

from hashlib import sha256

from pywaku.sds.options import RepairOptions


def hash_of(text: str) -> int:
    """The number that a text stands for: the first 8 bytes of its SHA-256."""
    return int.from_bytes(sha256(text.encode()).digest()[:8])


def request_delay_ms(me: str, message_id: str, options: RepairOptions) -> int:
    """T_req, from when the message was found missing."""
    return hash_of(me + message_id) % (options.t_max_ms - options.t_min_ms) + options.t_min_ms


def response_delay_ms(me: str, sender_id: str, message_id: str, options: RepairOptions) -> int:
    """T_resp, from when the message was requested: 0 for who sent it."""
    return (hash_of(me) ^ hash_of(sender_id)) * hash_of(message_id) % options.t_max_ms


def is_in_response_group(me: str, sender_id: str, message_id: str, options: RepairOptions) -> bool:
    """Whether it is on us to respond to requests for a message."""
    groups = options.num_response_groups
    return groups == 1 or hash_of(me + message_id) % groups == hash_of(sender_id + message_id) % groups
