"""The process that holds a program, and the channel to the process of a test."""

from __future__ import annotations

import json
import operator
import socket
from collections.abc import Callable

from rewardspec.rewards.code.runner.plain import decode, encode

TYPE_CHECKING = False  # as in `typing`, whose import takes longer than running a program
if TYPE_CHECKING:
    from typing import Any

LONGEST = 64 << 20  # bytes of a message
MUTABLE = (list, dict, set, bytearray)
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, args, kwargs: function(*args, **kwargs),
    "attribute": getattr,
    "assign": setattr,
    "item": operator.getitem,
    "put": operator.setitem,
    "iterate": iter,
    "next": next,
    "length": len,
    "equal": operator.eq,
    "less": operator.lt,
    "less_equal": operator.le,
    "true": bool,
    "text": str,
    "represent": repr,
    "instance": isinstance,
}


class Gone(BaseException):  # not an Exception, so that `except Exception` of a test or program does not catch it
    """The other process has ended or sent an invalid message."""


class Channel:
    """JSON messages over a socket, one for each line. Values other than plain data are sent as references."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self.rest = b""

    def send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message).encode()
        if len(text) > LONGEST:
            raise ValueError("the value is too long")
        try:
            self.connection.sendall(text + b"\n")
        except OSError:
            raise Gone from None

    def receive(self) -> dict[str, Any]:
        parts, length = [self.rest], len(self.rest)
        while b"\n" not in parts[-1]:
            try:
                part = self.connection.recv(1 << 16)
            except OSError:
                raise Gone from None
            length += len(part)
            if not part or length > LONGEST:
                raise Gone
            parts.append(part)
        line, _, self.rest = b"".join(parts).partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            raise Gone from None
        if not isinstance(message, dict):
            raise Gone
        return message


def hold_program(run: Callable[[], dict[str, object]], setup: str, connection: socket.socket) -> None:
    """Answer the other process's requests until it ends. run: runs the program and returns its names."""
    channel = Channel(connection)
    objects: list[object] = []

    def refer(value: object) -> int:
        objects.append(value)
        return len(objects) - 1

    def referred(content: Any) -> object:
        side, number = content
        return objects[number] if side == "program" else _callback(channel, number, to_wire, from_wire)

    def to_wire(value: object) -> object:
        return encode(value, refer)

    def from_wire(data: object) -> Any:
        return decode(data, referred)

    names: dict[str, object] = {}

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        nonlocal names
        try:
            if "names" in message:
                return {"value": {name: to_wire(names[name]) for name in message["names"] if name in names}}
            if "start" in message:
                names = run()
                if setup:
                    exec(compile(setup, "<setup>", "exec"), names)
                return {"value": None}
            args = from_wire(message["args"])
            value = _OPERATIONS[message["operation"]](*args)
            reply = {"value": to_wire(value)}
            if message["operation"] == "call":  # arguments that the call may have changed
                reply["args"] = [to_wire(arg) if type(arg) in MUTABLE else None for arg in args[1]]
            return reply
        except Gone:
            raise
        except BaseException as error:
            return {"raised": [type(error).__name__, _text(error)]}

    while True:
        channel.send(answer(channel.receive()))


def _text(error: BaseException) -> str:
    try:
        return str(error)[:1000]
    except BaseException:
        return ""


def _callback(
    channel: Channel, number: int, to_wire: Callable[..., Any], from_wire: Callable[..., Any]
) -> Callable[..., Any]:
    """A function of the test, for the program."""

    def function(*args: object, **kwargs: object) -> object:
        channel.send({"callback": number, "args": to_wire([list(args), kwargs])})
        reply = channel.receive()
        if "failed" in reply:
            raise TypeError(reply["failed"])
        return from_wire(reply["value"])

    return function
