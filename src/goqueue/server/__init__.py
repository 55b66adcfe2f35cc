"""The composition root: builds the real world from configuration and runs it."""

from goqueue.server.logs import LogFormat, LogLevel, LogSettings, configure_logging
from goqueue.server.running import Addresses, serve
from goqueue.server.server import Server, ServerConfig
from goqueue.server.settings import load_settings

__all__ = [
    "Addresses",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "Server",
    "ServerConfig",
    "configure_logging",
    "load_settings",
    "serve",
]
