"""The node and its configuration, and the Messaging API."""

from pywaku.messaging.assembly import open_node, open_node_on
from pywaku.messaging.config import NodeConfig
from pywaku.messaging.environment import Environment
from pywaku.messaging.node import Node
from pywaku.messaging.subscriptions import Subscription

__all__ = ["Environment", "Node", "NodeConfig", "Subscription", "open_node", "open_node_on"]
