"""CALL frames: a method by name, its arguments checked against the types it declares.

The methods themselves are grouped by noun in modules of their own; each is an async function with plain arguments.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from goqueue.broker import BrokerApi
from goqueue.errors import InvalidRequestError
from goqueue.frontends.wire.delay_calls import delay_calls
from goqueue.frontends.wire.group_calls import group_calls
from goqueue.frontends.wire.log_calls import log_calls
from goqueue.frontends.wire.pin_calls import pin_calls
from goqueue.frontends.wire.topic_calls import topic_calls

Method = Callable[..., Awaitable[object]]


class _Call:
    """A method with what its signature says, looked up once."""

    __slots__ = ("_known", "_name", "_required", "method")

    def __init__(self, name: str, method: Method) -> None:
        self._name = name
        self.method = method
        hints = typing.get_type_hints(method)
        parameters = inspect.signature(method).parameters
        self._known = {argument: hints[argument] for argument in parameters}
        self._required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]

    def check(self, arguments: Mapping[str, object]) -> None:
        for argument, value in arguments.items():
            if argument not in self._known:
                known = ", ".join(self._known) or "none"
                raise InvalidRequestError(f"{self._name}: unknown argument {argument!r}; known: {known}")
            try:
                msgspec.convert(value, self._known[argument])
            except msgspec.ValidationError as error:
                raise InvalidRequestError(f"{self._name}: {argument}: {error}") from None
        for argument in self._required:
            if argument not in arguments:
                raise InvalidRequestError(f"{self._name}: argument {argument!r} is missing")


class Calls:
    def __init__(self, broker: BrokerApi) -> None:
        nouns = (topic_calls, log_calls, pin_calls, group_calls, delay_calls)
        methods: dict[str, Method] = {name: call for calls in nouns for name, call in calls(broker).items()}
        self._calls = {name: _Call(name, method) for name, method in methods.items()}

    async def run(self, request: object) -> object:
        """Carry out `[method, arguments]`; anything else is refused with what is known."""
        if not isinstance(request, list) or len(request) != 2 or not isinstance(request[1], dict):
            raise InvalidRequestError("a call is [method, {argument: value}]")
        name, arguments = request
        call = self._calls.get(name) if isinstance(name, str) else None
        if call is None:
            raise InvalidRequestError(f"unknown method {name!r}; known: {', '.join(sorted(self._calls))}")
        call.check(arguments)
        return await call.method(**arguments)
