"""Protocols as data: framing that server and client share, without I/O."""

from goqueue.protocol import wire

__all__ = ["wire"]
