"""From callbacks to futures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from goqueue.errors import GoQueueError


def settler(future: asyncio.Future[None]) -> Callable[[GoQueueError | None], None]:
    """A callback that passes an outcome on to a future whose owner may have gone."""

    def done(error: GoQueueError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return done
