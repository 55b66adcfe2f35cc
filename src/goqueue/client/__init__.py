"""The Python client: an asyncio core and a blocking facade over the native protocol."""

from goqueue.client.client import Client, ClientConfig, FetchedBlock
from goqueue.client.consumer import Consumer, ConsumerConfig
from goqueue.client.producer import Producer, ProducerConfig, SendManyResult, SendResult
from goqueue.client.reader import Reader, Start
from goqueue.client.sync import SyncClient, SyncConsumer, SyncProducer, SyncReader

__all__ = [
    "Client",
    "ClientConfig",
    "Consumer",
    "ConsumerConfig",
    "FetchedBlock",
    "Producer",
    "ProducerConfig",
    "Reader",
    "SendManyResult",
    "SendResult",
    "Start",
    "SyncClient",
    "SyncConsumer",
    "SyncProducer",
    "SyncReader",
]
