"""Reliable channels (RELIABLE-CHANNEL-API): segmentation, SDS, rate limits, encryption and persistence."""

from pywaku.channels.channel import ReliableChannel
from pywaku.channels.creating import create_reliable_channel, open_channels
from pywaku.channels.events import ChannelEvent, ChunkInfo
from pywaku.channels.options import ReliableChannelOptions
from pywaku.channels.ratevalues import RateLimitConfig

__all__ = [
    "ChannelEvent",
    "ChunkInfo",
    "RateLimitConfig",
    "ReliableChannel",
    "ReliableChannelOptions",
    "create_reliable_channel",
    "open_channels",
]
