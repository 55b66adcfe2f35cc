"""The broker: one API below every face."""

from goqueue.broker.api import BrokerApi, FetchResult, Health, Phase, ReadResult
from goqueue.broker.config import BrokerConfig
from goqueue.broker.gathering import Gathering, Placed
from goqueue.broker.messages import Acks, Message, Published
from goqueue.broker.partition import Partition

__all__ = [
    "Acks",
    "BrokerApi",
    "BrokerConfig",
    "FetchResult",
    "Gathering",
    "Health",
    "Message",
    "Partition",
    "Phase",
    "Placed",
    "Published",
    "ReadResult",
]
