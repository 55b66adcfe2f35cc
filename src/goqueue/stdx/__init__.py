"""Data structures that know nothing of messages: one concept per module, no I/O, no other goqueue import."""

__all__: list[str] = []
