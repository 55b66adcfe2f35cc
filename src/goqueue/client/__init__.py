"""The Python client: an asyncio core and a blocking facade over the native protocol."""

from goqueue.client.client import Client, ClientConfig, FetchedBlock
from goqueue.client.producer import Producer, ProducerConfig, SendManyResult, SendResult
from goqueue.client.reader import Reader, Start
from goqueue.client.sync import SyncClient, SyncProducer, SyncReader

__all__ = [
    "Client",
    "ClientConfig",
    "FetchedBlock",
    "Producer",
    "ProducerConfig",
    "Reader",
    "SendManyResult",
    "SendResult",
    "Start",
    "SyncClient",
    "SyncProducer",
    "SyncReader",
]
