"""The broker: one API below every face."""

from goqueue.broker.api import BrokerApi, FetchResult, Health, Phase, ReadResult
from goqueue.broker.config import BrokerConfig
from goqueue.broker.gathering import Gathering, Placed
from goqueue.broker.group_offsets import OffsetView
from goqueue.broker.group_views import MemberView
from goqueue.broker.messages import Acks, Message, Published
from goqueue.broker.partition import Partition

__all__ = [
    "Acks",
    "BrokerApi",
    "BrokerConfig",
    "FetchResult",
    "Gathering",
    "Health",
    "MemberView",
    "Message",
    "OffsetView",
    "Partition",
    "Phase",
    "Placed",
    "Published",
    "ReadResult",
]
