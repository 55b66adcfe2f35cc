"""Settings of the HTTP port."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    host: str = "127.0.0.1"
    # 0 picks a free one.
    port: int = 8080
    # A larger body of a publish is refused without being read; it must hold the largest message in base64.
    body_bytes_max: int = 32 << 20
    # Bodies of everything else are a name and a few settings.
    control_body_bytes_max: int = 1 << 20
    # Request line and headers together.
    head_bytes_max: int = 64 << 10
    connections_max: int = 10_000
    # An idle connection is closed after this time, rounded up to whole seconds.
    keep_alive_timeout_ms: int = 75_000
    # A request has to arrive and its answer has to be taken within these times.
    request_timeout_ms: int = 60_000
    answer_timeout_ms: int = 60_000
    # What is under way when the server stops may go on for this long, rounded up to whole seconds.
    stop_timeout_ms: int = 5_000
    # Offsets of every partition as metrics; off because a broker may have very many.
    metrics_per_partition: bool = False

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a whole number of at least 1, not {value!r}"
            for name in self.__dataclass_fields__
            if name not in {"host", "port", "metrics_per_partition"}
            and (isinstance(value := getattr(self, name), bool) or not isinstance(value, int) or value < 1)
        ]
        if isinstance(self.port, bool) or not isinstance(self.port, int) or not 0 <= self.port <= 65_535:
            problems.append(f"port must be from 0 to 65535, not {self.port!r}")
        if not self.host:
            problems.append("host must not be empty")
        if problems:
            raise ConfigurationError("; ".join(problems), problems=problems)
