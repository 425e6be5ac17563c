"""Chunks of HDF5 files as they lie on the disk, made numbers again: of as many bytes as a chunk has, or refused.

HDF5 itself unpacks without a bound, and takes what a short chunk leaves of its buffer for numbers. Here every filter is
undone in at most the memory of its chunk, but for LZF, of which the length is found and the rest left to HDF5, as it
is slow to undo here. Invariant: a chunk that is not refused gives exactly `nbytes` bytes.
"""

import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000  # HDF5's numbers
KNOWN = (DEFLATE, SHUFFLE, FLETCHER32, LZF)
DOUBLINGS = 4  # one more halves the hops that are left, and costs two more gathers


class Filter(NamedTuple):
    """One filter of a dataset: HDF5's number for it, its name, and the size of the numbers where it shuffles them."""

    code: int
    name: str
    size: int


def most_bytes(nbytes: int) -> int:
    """What a chunk takes on the disk, or between two filters, at most: none of them makes numbers much longer."""
    return nbytes + nbytes // 16 + 1024


def unpacked(raw: bytes, filters: Sequence[Filter], mask: int, nbytes: int) -> bytes:
    """The bytes of a chunk's numbers.

    Args:
        raw: the chunk as it lies on the disk.
        filters: in the order in which they were applied, none of them LZF.
        mask: a bit for each filter that this chunk did without.
        nbytes: of the numbers of a chunk.

    Raises:
        ValueError: it is damaged, or unpacks to more or fewer bytes.
    """
    for one in reversed(_used(filters, mask)):
        raw = _undone(raw, one, most_bytes(nbytes))
    if len(raw) != nbytes:
        raise ValueError(f"a chunk of {len(raw)} bytes where {nbytes} are needed")
    return raw


def check_whole(raw: bytes, filters: Sequence[Filter], mask: int, nbytes: int) -> None:
    """Raises ValueError unless HDF5 would unpack a chunk to as many bytes as its numbers have: LZF is only measured."""
    used = _used(filters, mask)
    codes = [one.code for one in used]
    if LZF not in codes:
        unpacked(raw, filters, mask, nbytes)
        return
    place = codes.index(LZF)
    for one in reversed(used[place + 1 :]):
        raw = _undone(raw, one, most_bytes(nbytes))
    if {LZF, DEFLATE} & {*codes[:place]}:
        raise ValueError("a chunk that is packed twice")
    length, needed = lzf_length(raw), nbytes + 4 * codes[:place].count(FLETCHER32)
    if length != needed:
        raise ValueError(f"a chunk that unpacks to {length} bytes where {needed} are needed")


def _used(filters: Sequence[Filter], mask: int) -> list[Filter]:
    return [one for place, one in enumerate(filters) if not mask >> place & 1]


def _undone(raw: bytes, one: Filter, most: int) -> bytes:
    if one.code == DEFLATE:
        return _inflated(raw, most)
    if one.code not in (SHUFFLE, FLETCHER32):
        raise ValueError(f"a chunk that is packed twice with {one.name}")
    return _ordered(raw, one.size) if one.code == SHUFFLE else _summed(raw)


def _inflated(raw: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(raw, most + 1)
    if len(found) > most:
        raise ValueError(f"a chunk that unpacks to more than {most} bytes")
    if not stream.eof:
        raise ValueError("a chunk that ends before its end")
    return found


def _ordered(raw: bytes, size: int) -> bytes:
    """The bytes of every number together again, where the first of all came first, then the second of all."""
    if size < 2:
        return raw
    many = len(raw) // size
    numbers = np.frombuffer(raw, np.uint8, many * size).reshape(size, many)
    return numbers.T.tobytes() + raw[many * size :]


def _summed(raw: bytes) -> bytes:
    """Without Fletcher's sum at its end:  sum of words,  and of these times how many are left,  both mod 65535."""
    data, stored = raw[:-4], int.from_bytes(raw[-4:], "little")
    words = np.frombuffer(data + bytes(len(data) % 2), ">u2").astype(np.uint64)
    first, second = 0, 0
    for start in range(0, len(words), 2**16):  # sums of 2**16 products of 32 bits fit in 64
        part = words[start : start + 2**16]
        here = int(part.sum())
        second = (second + len(part) * first + int((part * np.arange(len(part), 0, -1, dtype=np.uint64)).sum())) % 65535
        first = (first + here) % 65535
    right = len(raw) >= 4 and first == (stored & 0xFFFF) % 65535 and second == (stored >> 16) % 65535
    if not right:
        raise ValueError("a chunk that does not match its checksum")
    return data


def lzf_length(raw: bytes) -> int:
    """How many bytes LZF unpacks to: runs of 1 to 32 bytes, and copies of 3 to 264, each coded in one to three bytes.

    From every byte, as if it began one, the next is found, and from there some further on; then the real ones.
    """
    heads = np.frombuffer(raw + bytes(3), np.uint8).astype(np.int32)[: len(raw) + 1]
    after = np.frombuffer(raw + bytes(3), np.uint8).astype(np.int32)[1 : len(raw) + 2]
    run, long = heads < 32, heads >= 224
    steps = np.where(run, heads + 2, 2 + long.astype(np.int32))
    lengths = np.where(run, heads + 1, (heads >> 5) + 2 + np.where(long, after, 0))
    beyond = len(raw) + 1  # where one ends that the chunk has not all of
    places = np.append(np.minimum(np.arange(len(raw) + 1, dtype=np.int32) + steps, beyond), np.int32(beyond))
    places[-2], lengths = len(raw), np.append(lengths, np.int32(0))
    lengths[-2] = 0
    for _ in range(DOUBLINGS):
        lengths, places = lengths + lengths.take(places), places.take(places)
    tables: tuple[Any, Any] = (places, lengths)
    hops = [memoryview(table) for table in tables]
    at, found = 0, 0
    while at < len(raw):
        at, found = hops[0][at], found + hops[1][at]
    if at != len(raw):
        raise ValueError("a chunk that ends before its end")
    return found
