"""The system calls that a guest in WebAssembly gets: clocks, random numbers and three streams.

Nothing here opens a file, a socket or a process, and every call of WASI that is not here is
answered "not supported". Numbers come from the guest and may be anything: what lies outside its
memory ends it.
"""

import os
import struct
import time
from collections.abc import Callable, Sequence
from typing import Protocol

BAD_DESCRIPTOR, FAULT, IO_ERROR, NOT_SUPPORTED, BROKEN_PIPE, NO_SEEK = 8, 21, 29, 58, 64, 70
"""Errors of WASI."""

MOST = 2**16
"""The most bytes that one call moves, but for a report."""

_STREAMS = (0, 1, 2)
_CHARACTERS = 2  # What a stream is, in the terms of WASI.
_ALL_RIGHTS = 2**29 - 1  # With the right to seek, it is no terminal.
_CLOCKS = (time.time_ns, time.monotonic_ns, time.process_time_ns, time.thread_time_ns)


class Memory(Protocol):
    """A guest's memory."""

    def read(self, start: int, size: int) -> bytes:
        """Some bytes of it; fewer where it ends."""
        ...

    def write(self, start: int, content: bytes) -> None:
        """Change some bytes of it.

        Raises:
            IndexError: they are not all in it.
        """
        ...


class ExitedError(Exception):
    """The guest has come to its end."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Calls:
    """The calls by their names. Each gets the guest's memory and returns an error, or 0."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Sequence[str],
        read: Callable[[int], bytes],
        report: Callable[[bytes], None],
    ) -> None:
        """What the guest is to find.

        Args:
            arguments: its command line.
            environment: as "name=value".
            read: its standard input: the next bytes, as many at most; none at the end.
            report: takes what it writes to standard error.
        """
        self._arguments = [text.encode() + b"\0" for text in arguments]
        self._environment = [text.encode() + b"\0" for text in environment]
        self._read = read
        self._report = report

    def args_sizes_get(self, memory: Memory, count: int, size: int) -> int:
        """How many words the command line has, and their bytes."""
        return _sizes(memory, self._arguments, count, size)

    def args_get(self, memory: Memory, places: int, texts: int) -> int:
        """The words of the command line."""
        return _texts(memory, self._arguments, places, texts)

    def environ_sizes_get(self, memory: Memory, count: int, size: int) -> int:
        """How many variables the environment has, and their bytes."""
        return _sizes(memory, self._environment, count, size)

    def environ_get(self, memory: Memory, places: int, texts: int) -> int:
        """The variables of the environment."""
        return _texts(memory, self._environment, places, texts)

    def clock_res_get(self, memory: Memory, clock: int, place: int) -> int:
        """Every clock counts microseconds."""
        memory.write(place, struct.pack("<Q", 1000))
        return 0

    def clock_time_get(self, memory: Memory, clock: int, precision: int, place: int) -> int:
        """What a clock shows."""
        if clock >= len(_CLOCKS):
            return NOT_SUPPORTED
        memory.write(place, struct.pack("<Q", _CLOCKS[clock]()))
        return 0

    def random_get(self, memory: Memory, place: int, size: int) -> int:
        """Random bytes."""
        for done in range(0, size, MOST):
            memory.write(place + done, os.urandom(min(MOST, size - done)))
        return 0

    def sched_yield(self, memory: Memory) -> int:
        """There is nobody to wait for."""
        return 0

    def proc_exit(self, memory: Memory, code: int) -> int:
        """The end."""
        raise ExitedError(code)

    def poll_oneoff(
        self, memory: Memory, wanted: int, happened: int, count: int, how_many: int
    ) -> int:
        """Sleep until the first of some clocks; streams are always ready."""
        waits: list[tuple[float, bytes]] = []
        for place in range(min(count, 64)):
            one = memory.read(wanted + 48 * place, 48).ljust(48, b"\0")
            tag, kind, clock, until, absolute = struct.unpack("<QB7xI4xQ8xH6x", one)
            if kind == 0:
                now = _CLOCKS[min(clock, 1)]() if absolute & 1 else 0
                waits.append((max(0.0, (until - now) / 1e9), struct.pack("<QHB21x", tag, 0, 0)))
            else:
                waits.append((0.0, struct.pack("<QHB5xQH6x", tag, 0, kind, 1, 0)))
        if not waits:
            return NOT_SUPPORTED
        seconds, event = min(waits)
        time.sleep(min(seconds, 1e6))
        memory.write(happened, event)
        memory.write(how_many, struct.pack("<I", 1))
        return 0

    def fd_prestat_get(self, memory: Memory, descriptor: int, place: int) -> int:
        """There is no folder to begin from."""
        return BAD_DESCRIPTOR

    def fd_fdstat_get(self, memory: Memory, descriptor: int, place: int) -> int:
        """What a descriptor is."""
        if descriptor not in _STREAMS:
            return BAD_DESCRIPTOR
        memory.write(place, struct.pack("<BxH4xQQ", _CHARACTERS, 0, _ALL_RIGHTS, _ALL_RIGHTS))
        return 0

    def fd_filestat_get(self, memory: Memory, descriptor: int, place: int) -> int:
        """What a descriptor is, as a file."""
        if descriptor not in _STREAMS:
            return BAD_DESCRIPTOR
        memory.write(place, struct.pack("<QQB7xQQQQQ", 0, 0, _CHARACTERS, 1, 0, 0, 0, 0))
        return 0

    def fd_seek(self, memory: Memory, descriptor: int, offset: int, start: int, place: int) -> int:
        """A stream has no place to go back to."""
        return NO_SEEK if descriptor in _STREAMS else BAD_DESCRIPTOR

    def fd_close(self, memory: Memory, descriptor: int) -> int:
        """A stream stays open, whoever closes it."""
        return 0 if descriptor in _STREAMS else BAD_DESCRIPTOR

    def fd_read(self, memory: Memory, descriptor: int, pieces: int, count: int, read: int) -> int:
        """Read from standard input."""
        if descriptor != 0:
            return BAD_DESCRIPTOR
        place, size = _first_piece(memory, pieces, count)
        some = self._read(min(size, MOST)) if size else b""
        memory.write(place, some)
        memory.write(read, struct.pack("<I", len(some)))
        return 0

    def fd_write(
        self, memory: Memory, descriptor: int, pieces: int, count: int, written: int
    ) -> int:
        """Write to standard output, or report."""
        if descriptor not in (1, 2):
            return BAD_DESCRIPTOR
        place, size = _first_piece(memory, pieces, count)
        # What is reported is one line, and of one piece.
        some = memory.read(place, min(size, MOST) if descriptor == 1 else size)
        try:
            done = os.write(1, some) if descriptor == 1 else len(some)
            if descriptor == 2:
                self._report(some)
        except BrokenPipeError:
            return BROKEN_PIPE
        except OSError:
            return IO_ERROR
        memory.write(written, struct.pack("<I", done))
        return 0


def _first_piece(memory: Memory, pieces: int, count: int) -> tuple[int, int]:
    """Where the first piece that is not empty lies, and its size; a call may do less than asked."""
    for number in range(min(count, 1024)):
        place, size = struct.unpack("<II", memory.read(pieces + 8 * number, 8).ljust(8, b"\0"))
        if size:
            return place, size
    return 0, 0


def _sizes(memory: Memory, texts: list[bytes], count: int, size: int) -> int:
    memory.write(count, struct.pack("<I", len(texts)))
    memory.write(size, struct.pack("<I", sum(map(len, texts))))
    return 0


def _texts(memory: Memory, texts: list[bytes], places: int, room: int) -> int:
    for number, text in enumerate(texts):
        memory.write(places + 4 * number, struct.pack("<I", room))
        memory.write(room, text)
        room += len(text)
    return 0
