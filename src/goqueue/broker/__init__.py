"""The broker: one API below every face."""

from goqueue.broker.api import BrokerApi, Health
from goqueue.broker.config import BrokerConfig
from goqueue.broker.messages import Acks, Message, Published
from goqueue.broker.partition import Partition

__all__ = ["Acks", "BrokerApi", "BrokerConfig", "Health", "Message", "Partition", "Published"]
