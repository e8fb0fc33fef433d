"""What PostgreSQL says when something is wrong, in words for operators, without the password."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import psycopg

from pywaku.errors import ArchiveError

# By SQLSTATE, whole or its first two letters (its class).
_REASONS: Final = {
    "53100": ("disk-full", "its disk is full"),
    "53": ("overloaded", "the server is out of resources"),
    "25006": ("read-only", "it cannot be written to"),
    "42501": ("denied", "this user may not do that"),
    "55P03": ("locked", "another session has locked it for too long"),
    "40": ("locked", "other sessions were in the way"),
    "57014": ("timeout", "it took too long"),
    "28": ("denied", "the server refuses this user or password"),
    "3D000": ("connection", "there is no such database"),
    "57": ("connection", "the server went away"),
    "08": ("connection", "the connection was lost"),
    "XX": ("corrupt", "the server finds its data damaged"),
}


class Redaction:
    """Takes a password out of texts, in each form in which it may have got into them."""

    def __init__(self, *secrets: str | None) -> None:
        forms = {form for text in secrets if text for form in (text, quote(text), quote(text, safe=""))}
        self._forms = sorted(forms, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text with *** in place of the secret."""
        for form in self._forms:
            text = text.replace(form, "***")
        return text


def clear_error(name: str, error: psycopg.Error, redact: Redaction) -> ArchiveError:
    """The error in words."""
    state = error.sqlstate
    if state is None:
        found = ("connection", "") if isinstance(error, psycopg.OperationalError) else ("other", "")
    else:
        found = _REASONS.get(state) or _REASONS.get(state[:2]) or ("other", "")
    reason, words = found
    said = " ".join(redact(str(error)).split())
    return ArchiveError(f"archive {name}: {words or 'failed'} ({said})", reason=reason)
