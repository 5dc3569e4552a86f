"""Messages over a socket: eight bytes of length, then that many bytes."""

import select
import socket
import time

_HEADER = 8


class ClosedError(Exception):
    """The other end is gone."""


class LateError(Exception):
    """There is no whole message yet, and no time left to wait for it."""


def send(connection: socket.socket, message: bytes, deadline: float) -> None:
    """Send a message.

    Args:
        connection: does not block.
        message: of any length.
        deadline: by time.monotonic().

    Raises:
        ClosedError: nobody is going to read it.
        LateError: it is not read in time.
    """
    left = memoryview(len(message).to_bytes(_HEADER, "big") + message)
    while left:
        try:
            left = left[connection.send(left) :]
        except BlockingIOError:
            _wait(connection, select.POLLOUT, deadline)
        except OSError as error:
            raise ClosedError from error


def receive(connection: socket.socket, longest: int, deadline: float) -> bytes:
    """Receive a message.

    Args:
        connection: does not block.
        longest: the most bytes it may have.
        deadline: by time.monotonic().

    Raises:
        ClosedError: the other end is gone, or sends what is no message.
        LateError: it does not come in time.
    """
    length = int.from_bytes(_receive(connection, _HEADER, deadline), "big")
    if length > longest:
        raise ClosedError
    return _receive(connection, length, deadline)


def _receive(connection: socket.socket, count: int, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < count:
        try:
            some = connection.recv(min(count - len(received), 2**20))
        except BlockingIOError:
            _wait(connection, select.POLLIN, deadline)
            continue
        except OSError as error:
            raise ClosedError from error
        if not some:
            raise ClosedError
        received += some
    return bytes(received)


def _wait(connection: socket.socket, event: int, deadline: float) -> None:
    left = deadline - time.monotonic()
    poll = select.poll()
    poll.register(connection, event)
    if left <= 0 or not poll.poll(1000 * left):
        raise LateError
