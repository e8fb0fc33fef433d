"""The relay router as a pure state machine: GossipSub v1.1 with v1.2's IDONTWANT, on Waku's terms."""

from pywaku.gossip.params import GossipParams, ScoreParams, TopicScoreParams
from pywaku.gossip.router import Gossip
from pywaku.gossip.types import Candidate, Counters, Echo, Outgoing, Published, Sizes, Verdict, Wish

__all__ = [
    "Candidate",
    "Counters",
    "Echo",
    "Gossip",
    "GossipParams",
    "Outgoing",
    "Published",
    "ScoreParams",
    "Sizes",
    "TopicScoreParams",
    "Verdict",
    "Wish",
]
