"""The HTTP face: JSON for people and scripts, native batches for programs, OpenAPI and metrics for the rest."""

from goqueue.frontends.http.config import HttpConfig
from goqueue.frontends.http.server import HttpServer

__all__ = ["HttpConfig", "HttpServer"]
