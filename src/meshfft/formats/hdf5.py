"""HDF5 files, opened as a `Source`: datasets found without a walk that a file can make long, chunks unpacked here.

What is stored in other files (external links and storage, virtual datasets) is refused. Invariant: no number is handed
on that the file does not hold: a chunk is as long as it must be, or refused; what was never written is the fill value,
or refused where there is none.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..extras import need
from .conventions import decoded
from .grid import Box
from .hdf5_filters import KNOWN, LZF, SHUFFLE, Filter, check_whole, most_bytes, unpacked
from .labels import scales_of
from .netcdf import attributes_of, candidates, labels_of
from .source import Read, Refused, Source, Steady, Unnamed, assigning, check_chunk, check_numbers, choose, source_of

MOST_OBJECTS = 10_000  # of a file whose dataset is to be found without its name
MOST_NAME = 4096


@contextlib.contextmanager
def open_hdf5(path: Path, dataset: str | None) -> Iterator[Source]:
    h5py, steady = need("h5py", "reading HDF5"), Steady(path)
    _check_classic(path)
    with h5py.File(path, "r") as file:
        array = h5py.Dataset(_found(h5py, path, file, dataset))
        check_numbers(path, array.shape, array.dtype)
        read = steady.reading(reader_of(h5py, path, array))
        source = source_of(path, array.shape, array.dtype, read, chunk=array.chunks)
        source = dataclasses.replace(source, name=str(array.name).strip("/"))
        labels = labels_of(h5py, array, lambda one: reader_of(h5py, path, one))
        if labels is not None:
            units, spacing = scales_of(labels)
            source = dataclasses.replace(source, labels=labels, units=units, spacing=spacing)
            source = decoded(source, attributes_of(h5py, array))
        yield source


def _check_classic(path: Path) -> None:
    """Raises Refused for the NetCDF of before version 4, which is no HDF5."""
    with open(path, "rb") as file:
        classic = file.read(3) == b"CDF"
    if classic:
        raise Refused(f"{path} is NetCDF of an old format: copy it to NetCDF-4, as nccopy -k nc4 IN OUT does")


def reader_of(h5py: Any, path: Path, array: Any) -> Read:
    """Reads boxes of a dataset that is stored in its own file."""
    _check_own(path, array)
    return _chunked(h5py, path, array) if array.chunks else _whole(h5py, path, array)


def _found(h5py: Any, path: Path, file: Any, dataset: str | None) -> Any:
    """The dataset of a name, or the only one there is that is no coordinate of others."""
    root = file.id
    found = None if dataset is None else _named(h5py, path, root, dataset.strip("/"))
    if found is None:
        names, links = _listed(h5py, path, root)
        if not (names or dataset) and links:
            raise Refused(_away(path, links))
        names = names if dataset is not None or len(names) < 2 else candidates(h5py, file, names)
        found = _named(h5py, path, root, choose(path, names, dataset))
    return found


def _named(h5py: Any, path: Path, root: Any, name: str) -> Any | None:
    """The dataset at the end of a path of names, each a link within the file."""
    at, done = root, []
    for part in name.encode("utf-8", "surrogateescape").split(b"/"):
        done.append(part.decode("utf-8", "replace"))
        if not isinstance(at, h5py.h5g.GroupID) or part in (b"", b".", b"..") or not at.links.exists(part):
            return None
        kind = at.links.get_info(part).type
        if kind == h5py.h5l.TYPE_EXTERNAL:
            raise Refused(_away(path, ["/".join(done)]))
        if kind != h5py.h5l.TYPE_HARD:
            return None
        at = h5py.h5o.open(at, part)
    return at if isinstance(at, h5py.h5d.DatasetID) else None


def _away(path: Path, links: list[str]) -> str:
    listed = ", ".join(sorted(links)[:20])
    return f"{path} has links to other files ({listed}), which are not followed: give that file"


def _listed(h5py: Any, path: Path, root: Any) -> tuple[list[str], list[str]]:
    """The names of datasets, each once, and those of links to other files; every group is opened from the one above."""
    names, links, groups, seen, count = list[str](), list[str](), [(root, "")], set[int](), 0
    many = f"{path} has more than {MOST_OBJECTS} groups and datasets, or names of more than {MOST_NAME} letters"
    many = f"{many}: name the one that is meant, as {Unnamed.argument}group/name"
    while groups:
        group, before = groups.pop()
        for name, kind in _links(group, MOST_OBJECTS + 1 - count):
            count, whole = count + 1, before + name.decode("utf-8", "surrogateescape")
            if not count <= MOST_OBJECTS or len(whole) > MOST_NAME:
                raise Unnamed(many)
            if kind == h5py.h5l.TYPE_EXTERNAL:
                links.append(whole)
            about = h5py.h5o.get_info(group, name) if kind == h5py.h5l.TYPE_HARD else None
            if about is None or about.addr in seen:
                continue
            seen.add(about.addr)
            if about.type == h5py.h5o.TYPE_DATASET:
                names.append(whole)
            if about.type == h5py.h5o.TYPE_GROUP:
                groups.append((h5py.h5o.open(group, name), f"{whole}/"))
    return sorted(names), sorted(links)


def _links(group: Any, most: int) -> list[tuple[bytes, int]]:
    """Names and kinds of the first `most` links in a group."""
    found: list[tuple[bytes, int]] = []

    def add(name: bytes, info: Any) -> bool:
        found.append((name, info.type))
        return len(found) >= most

    group.links.iterate(add, info=True)
    return found


def _check_own(path: Path, array: Any) -> None:
    """Raises Refused where the numbers lie in other files: a file could so name any that its reader may read."""
    if array.external:
        raise Refused(f"{path} keeps {array.name} in other files, which are not read: copy it")
    virtual = f"{path} puts {array.name} together from other datasets: give the files these are in, or copy it"
    if array.is_virtual:
        raise Refused(virtual)


def _whole(h5py: Any, path: Path, array: Any) -> Read:
    """Reads a dataset that lies in one run."""
    stored, needed = array.id.get_storage_size(), math.prod(array.shape) * array.id.get_type().get_size()
    if stored not in (0, needed):
        raise ValueError(f"{stored} bytes of numbers for shape {array.shape}")
    if stored == 0:
        _fill_of(h5py, path, array)
    return assigning(array)


def _fill_of(h5py: Any, path: Path, array: Any) -> Any:
    """What stands for numbers that were never written."""
    made = array.id.get_create_plist()
    undefined = made.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED
    known = not undefined and made.get_fill_time() != h5py.h5d.FILL_TIME_NEVER
    unset = f"{path} has no numbers in a part of {array.name} that was never written, and no value that stands for them"
    if not known:
        raise Refused(f"{unset}: write all of it")
    return array.fillvalue


def _chunked(h5py: Any, path: Path, array: Any) -> Read:
    """Reads a dataset that lies in chunks."""
    made = array.id.get_create_plist()
    filters = tuple(_filter(*made.get_filter(place)) for place in range(made.get_nfilters()))
    strange = [one.name for one in filters if one.code not in KNOWN]
    gzip = f"{path} packs its chunks with {', '.join(strange)}, whose length nobody can check: pack it with gzip or lzf"
    if strange:
        raise Refused(gzip)
    check_chunk(path, array.chunks, array.dtype.itemsize, array.shape)
    chunks = _Chunks(h5py, path, array, array.chunks, filters, array.id.get_type().get_size(), path.stat().st_size)
    same = array.id.get_type().equal(h5py.h5t.py_create(array.dtype, logical=True))
    return chunks.read if same and LZF not in [one.code for one in filters] else chunks.by_hdf5


def _filter(code: int, _: int, values: tuple[int, ...], name: bytes) -> Filter:
    size = values[0] if code == SHUFFLE and values else 0
    return Filter(code, name.decode("utf-8", "replace") or f"filter {code}", size)


class _Chunks(NamedTuple):
    """The chunks of a dataset: their shape, their filters, bytes of a number, and those of the file."""

    h5py: Any
    path: Path
    array: Any
    shape: tuple[int, ...]
    filters: tuple[Filter, ...]
    size: int
    most: int

    def read(self, box: Box, out: np.ndarray) -> None:
        for corner in self._corners(box):
            ends = zip(corner, self.shape, box, strict=True)
            part = [slice(max(s.start, c), min(s.stop, c + n)) for c, n, s in ends]
            place = tuple(slice(p.start - s.start, p.stop - s.start) for p, s in zip(part, box, strict=True))
            found = self._chunk(corner)
            inside = tuple(slice(p.start - c, p.stop - c) for p, c in zip(part, corner, strict=True))
            out[place] = _fill_of(self.h5py, self.path, self.array) if found is None else found[inside]

    def by_hdf5(self, box: Box, out: np.ndarray) -> None:
        """Leaves it to HDF5 to unpack and convert numbers, once their chunks are seen to be whole."""
        for corner in self._corners(box):
            found = self._stored(corner)
            if found is None:
                _fill_of(self.h5py, self.path, self.array)
            else:
                check_whole(found[0], self.filters, found[1], self._nbytes)
        out[...] = self.array[box]

    def _corners(self, box: Box) -> Iterator[tuple[int, ...]]:
        """Where the chunks begin that a box needs."""
        return itertools.product(*(range(s.start // n * n, s.stop, n) for s, n in zip(box, self.shape, strict=True)))

    @property
    def _nbytes(self) -> int:
        return self.size * math.prod(self.shape)

    def _stored(self, corner: tuple[int, ...]) -> tuple[bytes, int] | None:
        """One chunk as it lies on the disk, and the filters it did without; None where it was never written."""
        about = self.array.id.get_chunk_info_by_coord(corner)
        if about.byte_offset is None:
            return None
        fits = about.size <= most_bytes(self._nbytes) and about.byte_offset + about.size <= self.most
        if not fits:
            raise ValueError(f"a chunk of {about.size} bytes at {about.byte_offset}, of {self._nbytes} when unpacked")
        mask, raw = self.array.id.read_direct_chunk(corner)
        if len(raw) != about.size:
            raise ValueError(f"a chunk of {about.size} bytes read as {len(raw)}")
        return raw, mask

    def _chunk(self, corner: tuple[int, ...]) -> np.ndarray | None:
        """The numbers of one chunk."""
        found = self._stored(corner)
        if found is None:
            return None
        numbers = unpacked(found[0], self.filters, found[1], self._nbytes)
        return np.frombuffer(numbers, self.array.dtype).reshape(self.shape)
