"""What can be set about relay, and what it says of a published message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.protocols.relay.hashed import HashedMessage
from pywaku.protocols.relay.outbox import OutboxLimits
from pywaku.protocols.relay.validation import Validator
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.peer_record import addresses_in

MAX_MESSAGE_SIZE: Final = 150 * 1024
"""Bytes of an encoded message, attributes included (64/WAKU2-NETWORK, Message Size)."""


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """How relay behaves. The rules of The Waku Network are off by default; its preset switches them on.

    - `max_message_size`: larger encoded messages are rejected.
    - `validate_timestamps`: messages without a timestamp, or with one further from the clock than
      `timestamp_window_s`, are rejected.
    - `free_bandwidth_bps`: without a proof, messages are ignored while their shard carries as much or
      more, measured over `bandwidth_window_s` (None: no limit).
    - `proof_validator`: judges messages that have a `rate_limit_proof` (None: they pass).
    - `deliver_own`: what this node publishes reaches its own subscriptions too, as in nwaku (`triggerSelf`).
    - `outbox`: what may wait for one peer.
    - `slow_peer_grace_s`: how long `publish` waits for a peer whose outbox has filled up, before it is a slow
      peer that loses messages.
    - `publish_wait_s`: how long `publish` holds back while all peers that it would go to are slow.
    - `max_frame_size`: a peer that sends a larger RPC loses the stream and score.
    - `validator_timeout_s`, `max_validations`, `max_waiting_validations`, `max_waiting_validation_bytes`: how
      long an asynchronous validator may take (then: ignore), how many run at a time, and how many messages
      (and bytes of them) may wait for a place (beyond: ignore).
    - `delivery_wait_s`: how long reading from peers, and `publish`, pause at most for a subscription that is
      half full, before it is left to drop messages. Such a pause is taken from a budget: each second gives
      back 1 % of a second, so that a slow consumer costs the node no more than that part of its time. A
      consumer that merely waits for its turn, and then takes 10,000 messages a second or more, is waited for
      in any case.
    - `write_timeout_s`: a peer that accepts nothing for as long loses the stream.
    - `reopen_attempts`, `reopen_pause_s`: a failed stream is opened anew as often, with pauses that double.
    - `linger_s`: how long closing waits for what was published to leave.
    - `max_streams_per_peer`: inbound relay streams of one peer.
    - `direct_peers`: peering agreements (GossipSub v1.1, Explicit Peering Agreements): while connected these
      peers are sent every message, whatever the mesh is and whatever their score. They agree to the same, and
      somebody keeps them connected, as `bootstrap_nodes` does.
    - `peer_exchange_dials`: connections made at a time to peers which others recommend (0: none), with
      `peer_exchange_queue` of them waiting and `peer_exchange_retry_s` between two attempts at one peer.
    - `read_peer_record`: the addresses that a peer's signed record states, given the peer and the record,
      once its signature is verified; raises `DecodeError` (None: recommended peers are not dialed). Whose
      recommendations count is a matter of the score (`accept_px_threshold`).
    """

    max_message_size: int = MAX_MESSAGE_SIZE
    validate_timestamps: bool = False
    timestamp_window_s: float = 20.0
    free_bandwidth_bps: float | None = None
    bandwidth_window_s: float = 10.0
    proof_validator: Validator | None = None
    deliver_own: bool = True
    outbox: OutboxLimits = field(default_factory=OutboxLimits)
    slow_peer_grace_s: float = 0.2
    publish_wait_s: float = 5.0
    max_frame_size: int = 4 * 1024 * 1024
    validator_timeout_s: float = 5.0
    max_validations: int = 256
    max_waiting_validations: int = 4096
    max_waiting_validation_bytes: int = 16 * 1024 * 1024
    delivery_wait_s: float = 0.1
    write_timeout_s: float = 30.0
    reopen_attempts: int = 3
    reopen_pause_s: float = 0.5
    linger_s: float = 1.0
    max_streams_per_peer: int = 4
    direct_peers: frozenset[PeerId] = frozenset()
    peer_exchange_dials: int = 4
    peer_exchange_queue: int = 64
    peer_exchange_retry_s: float = 60.0
    read_peer_record: Callable[[PeerId, bytes], Sequence[Multiaddr]] | None = addresses_in

    def __post_init__(self) -> None:
        for name in ("max_message_size", "max_frame_size", "max_validations", "max_streams_per_peer"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is at least 1")
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, int | float) and value < 0:
                raise InvalidInput(f"{entry.name} is not negative")
        if self.bandwidth_window_s == 0:
            raise InvalidInput("bandwidth_window_s is positive")


class PublishOutcome(HashedMessage):
    """What became of a message given to `publish`.

    `peers` is how many peers' outboxes took it; with 0 it reached nobody yet (it is still remembered, and
    gossiped to peers that come within a few heartbeats; and it may be published again). `duplicate`: it had
    been seen before, so nothing was sent. `message_id` is what the router calls it.
    """

    __slots__ = ("duplicate", "message_id", "peers")

    def __init__(
        self,
        pubsub_topic: str,
        message: WakuMessage,
        message_id: bytes,
        peers: int,
        *,
        duplicate: bool = False,
    ) -> None:
        super().__init__(pubsub_topic, message)
        self.message_id = message_id
        self.peers = peers
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return (
            f"PublishOutcome(message_hash={self.message_hash.hex()}, peers={self.peers}, "
            f"duplicate={self.duplicate})"
        )


class MessageRefused(InvalidInput):
    """A message of this node breaks a rule of the network it was to be published on, so it was not sent."""

    def __init__(self, reason: str, explanation: str, *, size: int) -> None:
        super().__init__(explanation)
        self.reason = reason
        """The rule: `size`, `timestamp`, `bandwidth`, `validator`, `validator-error`, `validator-timeout`."""
        self.size = size
        """The bytes of the encoded message."""
