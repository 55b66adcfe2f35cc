"""The machine that knows which topics there are. Pure: it decides and replays, others append and sync."""

from goqueue.metadata.catalog import MetadataRecord, TopicCatalog, TopicInfo
from goqueue.metadata.pins import RetentionPins
from goqueue.metadata.settings import CleanupPolicy, TopicSettings

__all__ = ["CleanupPolicy", "MetadataRecord", "RetentionPins", "TopicCatalog", "TopicInfo", "TopicSettings"]
