"""What light push says of a message: codes and texts of both versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.protocols.relay import MessageRefused
from pywaku.wire.lightpush import Status
from pywaku.wire.lightpush_legacy import PushResponse

INVALID_MESSAGE: Final = 420
"""The message breaks a rule of relay. The specification leaves room for codes; nwaku has this one."""

LEGACY_NO_PEERS: Final = "not_published_to_any_peer"
LEGACY_TOO_MANY_REQUESTS: Final = "TOO_MANY_REQUESTS"

_REFUSALS: Final = {
    "size": int(Status.PAYLOAD_TOO_LARGE),
    "bandwidth": int(Status.TOO_MANY_REQUESTS),
    "validator-error": int(Status.INTERNAL_SERVER_ERROR),
    "validator-timeout": int(Status.INTERNAL_SERVER_ERROR),
}


@dataclass(frozen=True, slots=True)
class PushResult:
    """What became of a message: what the service node answered.

    `status` is a code of `Status`, or another one; None where a legacy node reported a failure, for which
    it has words only (`description`). `relay_peer_count` is to how many peers the message went, where the
    node said so.
    """

    status: int | None
    description: str = ""
    relay_peer_count: int | None = None

    @property
    def is_success(self) -> bool:
        """Whether the message was relayed."""
        return self.status == Status.SUCCESS


def of_refusal(refused: MessageRefused) -> PushResult:
    """What to say of a message that relay does not take."""
    return PushResult(_REFUSALS.get(refused.reason, INVALID_MESSAGE), str(refused))


def to_legacy(request_id: str, result: PushResult) -> PushResponse:
    """The result in the words of the legacy protocol, as nwaku puts them."""
    if result.is_success:
        return PushResponse(request_id, True, "OK")
    if result.status in (Status.NO_PEERS_TO_RELAY, Status.UNSUPPORTED_PUBSUB_TOPIC):
        return PushResponse(request_id, False, LEGACY_NO_PEERS)
    if result.status == Status.TOO_MANY_REQUESTS:
        return PushResponse(request_id, False, LEGACY_TOO_MANY_REQUESTS)
    return PushResponse(request_id, False, result.description)


def from_legacy(response: PushResponse) -> PushResult:
    """What a legacy response means."""
    if response.is_success:
        return PushResult(int(Status.SUCCESS), response.info)
    if LEGACY_NO_PEERS in response.info:
        return PushResult(int(Status.NO_PEERS_TO_RELAY), response.info, 0)
    if LEGACY_TOO_MANY_REQUESTS in response.info:
        return PushResult(int(Status.TOO_MANY_REQUESTS), response.info)
    return PushResult(None, response.info)
