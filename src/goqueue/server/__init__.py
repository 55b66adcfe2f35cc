"""The composition root: builds the real world from configuration and runs it."""

from goqueue.server.server import Server, ServerConfig

__all__ = ["Server", "ServerConfig"]
