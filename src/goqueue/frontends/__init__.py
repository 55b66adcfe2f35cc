"""Faces of the broker. Each translates its protocol to `BrokerApi` and back; none has rules of its own."""

__all__: list[str] = []
