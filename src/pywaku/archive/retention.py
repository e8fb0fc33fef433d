"""Retention policies as operators write them: `time:172800`, `capacity:25000`, `size:30GB`. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from pywaku.archive.port import RetentionPolicy
from pywaku.errors import InvalidInput

DEFAULT_RETENTION: Final = "time:172800"
"""Two days, as nwaku."""

_UNITS: Final = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([KMGT]B)", re.IGNORECASE | re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
_SHAPE: Final = "time:SECONDS, capacity:MESSAGES, size:NGB (or KB, MB, TB), several with ';' between, or none"


def parse_retention(text: str) -> RetentionPolicy:
    """The policy in `text`; an empty one, or `none`, keeps everything. Units are powers of 1024."""
    policy = RetentionPolicy()
    if text.strip().lower() in ("", "none"):
        return policy
    for part in re.split(r"[;,]", text):
        kind, _, value = part.strip().partition(":")
        value = value.strip()
        match kind.strip().lower():
            case "time" if policy.max_age_s is None:
                policy = replace(policy, max_age_s=_number(value, text))
            case "capacity" if policy.max_messages is None:
                policy = replace(policy, max_messages=_number(value, text))
            case "size" if policy.max_bytes is None:
                policy = replace(policy, max_bytes=_size(value, text))
            case "time" | "capacity" | "size":
                raise InvalidInput(f"retention policy {text!r} says {kind.strip()} twice")
            case _:
                raise _unclear(text)
    return policy


def _number(value: str, text: str) -> int:
    if not _NUMBER.fullmatch(value) or int(value) == 0:
        raise _unclear(text)
    return int(value)


def _size(value: str, text: str) -> int:
    found = _SIZE.fullmatch(value)
    if found is None:
        raise _unclear(text)
    size = int(float(found[1]) * _UNITS[found[2].upper()])
    if size < 1:
        raise _unclear(text)
    return size


def _unclear(text: str) -> InvalidInput:
    return InvalidInput(f"retention policy {text!r} is not of the form {_SHAPE}")
