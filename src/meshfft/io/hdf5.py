"""HDF5 and NetCDF-4 files, read by h5py after the checks that HDF5 does not make.

HDF5 follows links to other files, unpacks chunks without a bound, and takes the unset rest of a short chunk for
numbers. So datasets are looked up link by link, and unpacked chunks are measured before they are read. Invariant: every
number is stored in the file; unwritten ones are the fill value, or refused.
"""

import contextlib
import itertools
import math
import secrets
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .grid import Box
from .labels import MOST_ATTRIBUTE, MOST_COORDINATE, choose, coordinate_of, described, dims_of, plain_json, words
from .refusals import Refused, check_chunk, check_numbers, unchanged
from .source import Coordinate, Labels, Read, Source, assigning, source_of

if TYPE_CHECKING:
    import h5py

MOST_OBJECTS = 10_000  # searched for a dataset without a name
DEFLATE, SHUFFLE, FLETCHER32, LZF = 1, 2, 3, 32000
SUM_BYTES = 4
INTERNAL = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")  # attributes of dimension scales
ONLY_A_DIMENSION = b"This is a netCDF dimension but not a netCDF variable"
NETCDF = ("_Netcdf4", "_NC", "_nc3")  # prefixes of NetCDF's own attributes
DEFAULTS = {  # fill values, by type; numbers of one byte have none
    **dict.fromkeys(("f4", "f8"), 9.969209968386869e36),
    **{"i2": -(2**15) + 1, "i4": -(2**31) + 1, "i8": -(2**63) + 2, "u2": 2**16 - 1, "u4": 2**32 - 1, "u8": 2**64 - 2},
}
HIDDEN = "_nc4_non_coord_"  # prefix of an array with the name of a dimension


@contextlib.contextmanager
def open_hdf5(path: Path, dataset: str | None) -> Iterator[Source]:
    import h5py

    check = unchanged(path)
    with open(path, "rb") as plain:
        if plain.read(3) == b"CDF":
            raise Refused(f"{path} is NetCDF of an old format: copy it to NetCDF-4, as nccopy -k nc4 IN OUT does")
    with h5py.File(path, "r") as file:
        array = None if dataset is None else named(path, file, dataset.strip("/"))
        if array is None:
            arrays = _datasets(path, file)
            found = {name: (_dims(one), _attributes(one)) for name, one in arrays.items()}
            array = arrays[choose(path, found, dataset)]
        check_numbers(path, array.shape, array.dtype)
        name, read = array.name.strip("/"), _reader(path, array)
        source = source_of(path, array.shape, array.dtype, read, check, chunk=array.chunks, name=name)
        yield described(source, _labels(path, array), _unwritten(array) | _attributes(array))


def named(path: Path, group: "h5py.Group", name: str) -> "h5py.Dataset | None":
    import h5py

    at = group.id
    for part in name.encode("utf-8", "surrogateescape").split(b"/"):
        if not isinstance(at, h5py.h5g.GroupID) or part in (b"", b".", b"..") or not at.links.exists(part):
            return None
        kind = at.links.get_info(part).type
        if kind == h5py.h5l.TYPE_EXTERNAL:
            raise Refused(f"{path} has a link to another file on the way to {name}, not followed: give that file")
        if kind != h5py.h5l.TYPE_HARD:
            return None
        at = h5py.h5o.open(at, part)
    return h5py.Dataset(at) if isinstance(at, h5py.h5d.DatasetID) else None


def _datasets(path: Path, file: "h5py.File") -> "dict[str, h5py.Dataset]":
    """A file's datasets by name, each once; HDF5's own walk has no bound on its depth."""
    import h5py

    arrays, groups, seen, count = dict[str, h5py.Dataset](), [("", file.id)], set[int](), 0
    while groups:
        before, group = groups.pop()
        count += len(group)
        if count > MOST_OBJECTS:
            many = f"{path} has more than {MOST_OBJECTS} groups and datasets"
            raise Refused(f"{many}: name the one to read, as dataset=group/name")
        for name, item in members(group):
            address = h5py.h5o.get_info(item).addr
            if isinstance(item, h5py.h5d.DatasetID) and address not in seen:
                arrays[before + name] = h5py.Dataset(item)
            if isinstance(item, h5py.h5g.GroupID) and address not in seen:
                groups.append((f"{before}{name}/", item))
            seen.add(address)
    return arrays


def members(group: "h5py.h5g.GroupID") -> "Iterator[tuple[str, h5py.h5g.GroupID | h5py.h5d.DatasetID]]":
    """Hard links of a group, by name; other links may leave the file."""
    import h5py

    for part in group:
        if group.links.get_info(part).type == h5py.h5l.TYPE_HARD:
            yield part.decode("utf-8", "surrogateescape"), h5py.h5o.open(group, part)


def _reader(path: Path, array: "h5py.Dataset") -> Read:
    """Reader of a dataset; refuses data in other files, since a link can name any file of the user."""
    if array.external:
        raise Refused(f"{path} keeps {array.name} in other files, which are not read: copy it")
    if array.is_virtual:
        raise Refused(f"{path} puts {array.name} together from other datasets: give the files these are in, or copy it")
    if array.chunks:
        return _chunked(path, array)
    stored, needed = array.id.get_storage_size(), math.prod(array.shape) * array.id.get_type().get_size()
    if stored not in (0, needed):
        raise ValueError(f"{stored} bytes of numbers for shape {array.shape}")
    if stored == 0:
        _check_fill(path, array)
    return assigning(array)


def _check_fill(path: Path, array: "h5py.Dataset") -> None:
    import h5py

    made = array.id.get_create_plist()
    undefined = made.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED
    if undefined or made.get_fill_time() == h5py.h5d.FILL_TIME_NEVER:
        unset = f"a part of {array.name} that was never written, and no value that stands for them"
        raise Refused(f"{path} has no numbers in {unset}: write all of it")


def _chunked(path: Path, array: "h5py.Dataset") -> Read:
    made = array.id.get_create_plist()
    filters = [made.get_filter(index) for index in range(made.get_nfilters())]
    strange = [name.decode("utf-8", "replace") or f"filter {code}" for code, _, _, name in filters if code not in KNOWN]
    if strange:
        packs = f"{path} packs its chunks with {', '.join(strange)}, whose length nobody can check"
        raise Refused(f"{packs}: pack it with gzip or lzf")
    check_chunk(path, array.chunks, array.dtype.itemsize, array.shape)
    file_bytes, needed = path.stat().st_size, array.id.get_type().get_size() * math.prod(array.chunks)

    def check(corner: tuple[int, ...]) -> None:
        about = array.id.get_chunk_info_by_coord(corner)
        if about.byte_offset is None:
            return _check_fill(path, array)
        if about.size > most_bytes(needed) or about.byte_offset + about.size > file_bytes:
            raise ValueError(f"a chunk of {about.size} bytes at {about.byte_offset}, of {needed} when unpacked")
        used = [code for index, (code, *_) in enumerate(filters) if not about.filter_mask >> index & 1]
        length = about.size - SUM_BYTES * used.count(FLETCHER32)
        if UNPACKED.keys() & {*used}:
            length = len(_unpacked(array.id.read_direct_chunk(corner)[1], used, most_bytes(needed)))
        if length != needed:
            raise ValueError(f"a chunk that unpacks to {length} bytes where {needed} are needed")

    def read(box: Box, out: np.ndarray) -> None:
        sides = zip(box, array.chunks, strict=True)
        for corner in itertools.product(*(range(s.start // n * n, s.stop, n) for s, n in sides)):
            check(corner)
        out[...] = array[box]

    return read


def most_bytes(nbytes: int) -> int:
    """Most bytes of a chunk, packed or between filters: none lengthens numbers much."""
    return nbytes + nbytes // 16 + 1024


def _unpacked(raw: bytes, used: Sequence[int], most: int) -> bytes:
    """Undoes a chunk's filters, except shuffling; HDF5 checks sums itself."""
    for code in reversed(used):
        if code == FLETCHER32:
            raw = raw[:-SUM_BYTES]
        elif code in UNPACKED:
            raw = UNPACKED[code](raw, most)
            if len(raw) > most:
                raise ValueError(f"a chunk that unpacks to more than {most} bytes")
    return raw


def _inflated(raw: bytes, most: int) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(raw, most + 1)
    if len(found) <= most and not stream.eof:
        raise ValueError("a chunk that ends before its end")
    return found


def _lzf_unpacked(raw: bytes, most: int) -> bytes:
    """Unpacks by h5py up to a random mark, 32 literal bytes appended to the chunk."""
    import h5py

    mark, size = secrets.token_bytes(32), most + 32
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        one = file.create_dataset("chunk", (size,), "u1", chunks=(size,), compression="lzf")
        one.id.write_direct_chunk((0,), raw + bytes([len(mark) - 1]) + mark)
        return bytes(one[...].tobytes().partition(mark)[0])  # all of it, which is too much, without the mark


UNPACKED = {DEFLATE: _inflated, LZF: _lzf_unpacked}
KNOWN = (*UNPACKED, SHUFFLE, FLETCHER32)


def _labels(path: Path, array: "h5py.Dataset") -> Labels | None:
    dims, attributes = _dims(array), _attributes(array)
    if dims is None or array.is_scale:
        return None
    scales = [array.dims[index][0] for index in range(array.ndim)]
    beside = [named(path, array.parent, name) for name in words(attributes.get("coordinates")) if "/" not in name]
    found = [_coordinate(path, one, dims) for one in [*scales, *beside] if one is not None]
    known = {one.name: one for one in found if one is not None}
    about = plain_json(_attributes(array.parent))
    return Labels(_last(array), dims, plain_json(attributes), tuple(known.values()), about)


def _coordinate(path: Path, one: "h5py.Dataset", dims: tuple[str, ...]) -> Coordinate | None:
    own, text = _dims(one), one.attrs.get("NAME", b"") if one.is_scale else b""
    empty = (text.encode() if isinstance(text, str) else bytes(text)).startswith(ONLY_A_DIMENSION)
    few = one.dtype.kind in "iuf" and 0 < math.prod(one.shape) * one.dtype.itemsize <= MOST_COORDINATE
    if empty or not few or own is None or not set(own) <= set(dims):
        return None
    values = np.empty(one.shape, one.dtype.newbyteorder("="))
    _reader(path, one)(tuple(slice(0, n) for n in one.shape), values)
    return coordinate_of(_last(one), own, _attributes(one), values)


def _dims(array: "h5py.Dataset") -> tuple[str, ...] | None:
    if array.ndim == 1 and array.is_scale:
        return (_last(array),)
    if any(len(dim) == 0 for dim in array.dims):
        return None
    return dims_of([_last(dim[0]) for dim in array.dims])


def _attributes(item: "h5py.Dataset | h5py.Group") -> dict[str, object]:
    import h5py

    found = dict[str, object]()
    for name in item.attrs:
        small = h5py.h5a.open(item.id, name.encode()).get_storage_size() <= MOST_ATTRIBUTE
        if small and name not in INTERNAL and not name.startswith(NETCDF):
            found[name] = _plain(item.attrs[name])
    return {name: value for name, value in found.items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        parts = [_plain(part) for part in value.reshape(-1)]
        return parts[0] if len(parts) == 1 else None if None in parts else parts
    if isinstance(value, np.number):
        return value.item() if value.dtype.kind in "iuf" else None
    return value if isinstance(value, str) else None


def _unwritten(array: "h5py.Dataset") -> dict[str, object]:
    """NetCDF's default mark of a number that was never written, which no attribute names."""
    default = DEFAULTS.get(array.dtype.newbyteorder("=").str[1:])
    return {} if default is None or array.fillvalue != array.dtype.type(default) else {"_FillValue": default}


def _last(array: "h5py.Dataset") -> str:
    return str(array.name).rpartition("/")[2].removeprefix(HIDDEN)
