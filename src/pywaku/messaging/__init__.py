"""The node and its configuration."""

from pywaku.messaging.config import NodeConfig
from pywaku.messaging.node import Node, open_node

__all__ = ["Node", "NodeConfig", "open_node"]
