"""The native binary protocol: framing shared with the client, and the server side."""

from goqueue.frontends.wire.server import WireConfig, WireServer

__all__ = ["WireConfig", "WireServer"]
