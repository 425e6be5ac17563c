"""ISMRMRD files, which store a scanner's readouts one by one; those of one image become two arrays.

    GROUP/xml     the header: the encoded matrix, its field of view, and the kind of trajectory
    GROUP/data    for each readout a head, a trajectory (samples, d), and values (coils, samples)

    Cartesian     k_x = (sample - center_sample) / N_x,   k_y = (step_1 - center_1) / N_y,   k_z likewise, in turns

Noise, navigators and discarded samples are left out. Invariant: readouts of two images are never mixed, and an
ambiguous file is refused.
"""

import contextlib
import math
import xml.etree.ElementTree as tree
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..extras import need
from ..layout.memory import check_held
from .hdf5 import members, named
from .refusals import Refused, readable, unchanged
from .source import Source, assigning, source_of

if TYPE_CHECKING:
    import h5py

SUFFIXES = (".h5", ".hdf5", ".mrd")
MOST_XML = 2**24
TOGETHER = 64  # readouts read at once
INDICES = ("slice", "contrast", "phase", "repetition", "set")  # indices that separate images
ALL = "all"  # index value: all readouts form one image
CALIBRATES_TOO, REVERSED, COMPRESSED = 21, 22, (53, 54, 55, 56)  # flags, counted from 1
LEFT_OUT = {
    **{19: "noise", 20: "calibration", 23: "navigator", 24: "phase correction", 26: "feedback", 27: "dummy"},
    **{28: "feedback", 29: "surface coil correction", 30: "phase stabilization", 31: "phase stabilization"},
}
HEAD = (
    *("flags", "number_of_samples", "active_channels", "discard_pre", "discard_post", "center_sample"),
    *("encoding_space_ref", "trajectory_dimensions", "idx"),
)


class Encoding(NamedTuple):
    trajectory: str  # "cartesian", "radial", ...
    matrix: tuple[int, ...]  # pixels along x, y and z
    field_of_view: tuple[float, ...]  # in mm
    centres: tuple[int, ...]  # steps 1 and 2 at the middle of k-space

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.matrix if self.matrix[2] > 1 else self.matrix[:2]


class Scan(NamedTuple):
    values: Source  # of shape (coils, samples)
    points: np.ndarray  # of shape (samples, 2 or 3)
    cartesian: bool  # the points were computed, in turns; else they are the file's, in its unit
    encoding: Encoding
    words: str


def is_scan(path: Path, group: str | None = None) -> bool:
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        return False
    h5py = need("h5py", "reading ISMRMRD")
    if not h5py.is_hdf5(path):
        return False
    with readable(path), h5py.File(path, "r") as file:
        return bool(_groups(path, file, group))


def encodings_of(path: Path, group: str | None = None) -> list[Encoding]:
    if not is_scan(path, group):
        return []
    with _opened(path, group) as (header, _):
        return header


def read_scan(path: str | Path, group: str | None = None, select: str = "", *, trajectory: bool = True) -> Scan:
    """Reads all readouts of one image.

    Args:
        path, group: the file and a group in it, optional if only one has readouts.
        select: slice, contrast, phase, repetition, set or encoding, as "slice=2,phase=0"; "phase=all" combines all
            phases, which is impossible for slices and encodings.
        trajectory: whether to read the points.

    Raises ValueError if the file is damaged, has several images, or cannot be reconstructed.
    """
    path, wanted = Path(path), selected(select)
    check = unchanged(path)
    with _opened(path, group) as (header, data):
        heads = _heads(path, data)
        kept, words = _kept(path, heads, wanted)
        found = heads[kept]
        dims = _same(path, found["trajectory_dimensions"], "trajectories of d = {} coordinates")
        coils = _same(path, found["active_channels"], "{} coils")
        encoding = _encoding(path, header, found, computed=trajectory and dims == 0)
        used = _used(path, found, coils + dims)
        values, points = _samples(data, kept, found, used, coils, dims)
        if trajectory:
            points = _coordinates(path, encoding, points if dims else _cartesian(encoding, found, used))
    check()
    source = source_of(path, values.shape, values.dtype, assigning(values), check)
    return Scan(source, points, dims == 0, encoding, words)


def selected(text: str) -> dict[str, int | str]:
    found = dict[str, int | str]()
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        every = value == ALL and name in INDICES[1:]
        if name not in ("encoding", *INDICES) or not (every or (value.isdecimal() and len(value) < 6)):
            remedy = f"give {', '.join(INDICES)} or encoding a number, as slice=2, or phase=all"
            raise ValueError(f"{part!r} selects no readouts: {remedy}")
        found[name] = value if every else int(value)
    return found


@contextlib.contextmanager
def _opened(path: Path, group: str | None) -> Iterator[tuple[list[Encoding], "h5py.Dataset"]]:
    h5py = need("h5py", "reading ISMRMRD")
    with readable(path), h5py.File(path, "r") as file:
        groups = _groups(path, file, group)
        if len(groups) != 1:
            listed = ", ".join(groups) or "no group of readouts"
            raise Refused(f"{path} has {listed}: name the group of one scan as the dataset")
        xml, data = (named(path, file, f"{groups[0]}/{part}") for part in ("xml", "data"))
        yield _encodings(path, xml), data


def _groups(path: Path, file: "h5py.File", group: str | None) -> list[str]:
    found = list[str]()
    for name in (name for name, _ in members(file.id) if group in (None, name)):
        with contextlib.suppress(Refused):  # links to other files
            xml, data = (named(path, file, f"{name}/{inner}") for inner in ("xml", "data"))
            if xml is not None and data is not None and "head" in (data.dtype.names or ()):
                found.append(name)
    return found


def _encodings(path: Path, xml: "h5py.Dataset") -> list[Encoding]:
    """Refuses entity definitions, which could fill the memory."""
    text = np.ravel(xml[()])[0]
    text = text.encode() if isinstance(text, str) else bytes(text)
    if len(text) > MOST_XML or b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise Refused(f"{path} has a header of {len(text)} bytes that is none of ISMRMRD's: make it again")
    return [_one_encoding(path, one) for one in tree.fromstring(text.rstrip(b"\0")).iterfind(".//{*}encoding")]


def _one_encoding(path: Path, one: tree.Element) -> Encoding:
    def number(at: str, default: str | None = None) -> float:
        text = one.findtext("/".join(f"{{*}}{name}" for name in at.split("/")), default)
        value = float(text) if text else math.nan
        if not 0 <= value < 2**16:
            raise Refused(f"{path} has an encoding without a {at}: complete its header")
        return value

    matrix = tuple(int(number(f"encodedSpace/matrixSize/{x}")) for x in "xyz")
    if min(matrix) < 1:
        raise Refused(f"{path} has an encoded matrix of {matrix}: complete its header")
    limits = (f"encodingLimits/kspace_encoding_step_{step}/center" for step in (1, 2))
    centres = (int(number(at, str(n // 2))) for at, n in zip(limits, matrix[1:], strict=True))
    sizes = (number(f"encodedSpace/fieldOfView_mm/{x}") for x in "xyz")
    return Encoding(one.findtext("{*}trajectory", "").strip().lower(), matrix, tuple(sizes), tuple(centres))


def _heads(path: Path, data: "h5py.Dataset") -> np.ndarray:
    filters = data.id.get_create_plist().get_nfilters()
    if data.ndim != 1 or data.external or data.is_virtual or filters:
        raise Refused(f"{path} packs its readouts, or keeps them elsewhere: copy it with the ismrmrd package")
    names = {*(data.dtype["head"].names or ()), *data.dtype.names}
    missing = [name for name in (*HEAD, "traj", "data") if name not in names]
    if missing:
        raise Refused(f"{path} has readouts without {', '.join(missing)}: convert it to ISMRMRD 1.x")
    needed = len(data) * data.id.get_type().get_size()
    if min(data.id.get_storage_size(), path.stat().st_size) < needed:
        raise ValueError(f"{len(data)} readouts of which some were never written")
    return np.asarray(data.fields("head")[...])


def _flagged(heads: np.ndarray, *flags: int) -> np.ndarray:
    return np.asarray(heads["flags"] & np.uint64(sum(1 << (flag - 1) for flag in flags)) != 0)


def _kept(path: Path, heads: np.ndarray, select: Mapping[str, int | str]) -> tuple[np.ndarray, str]:
    kept, words = np.ones(len(heads), bool), list[str]()
    for name in dict.fromkeys(LEFT_OUT.values()):
        out = kept & _flagged(heads, *(flag for flag, one in LEFT_OUT.items() if one == name))
        if name == "calibration":
            out &= ~_flagged(heads, CALIBRATES_TOO)
        words += [f"{out.sum()} {name}"] if out.any() else []
        kept &= ~out
    if not kept.any():
        raise Refused(f"{path} has no readout of an image ({', '.join(words) or 'none at all'}): give another scan")
    for name in ("encoding", *INDICES):
        values = heads["encoding_space_ref"] if name == "encoding" else heads["idx"][name]
        have, one = np.unique(values[kept]).tolist(), select.get(name)
        many = f"{path} has readouts of {name} {', '.join(map(str, have[:20]))}{', ...' * (len(have) > 20)}"
        if one is None and len(have) > 1:
            raise Refused(f"{many}, of images that must not be mixed: select one, as select={name}={have[0]}")
        if one not in (None, ALL, *have):
            raise Refused(f"{many}, and none of {name} {one}: select one of these")
        if one not in (None, ALL):
            words += [f"{(kept & (values != one)).sum()} of another {name}"] if len(have) > 1 else []
            kept &= values == one
    out = f", left out: {', '.join(words)}" if words else ""
    return np.flatnonzero(kept), f"{kept.sum()} of {len(heads)} readouts{out}"


def _same(path: Path, values: np.ndarray, what: str) -> int:
    found = np.unique(values).tolist()
    if len(found) > 1:
        raise Refused(f"{path} has readouts of {what.format(' and '.join(map(str, found)))}: write a file for each")
    return int(found[0])


def _encoding(path: Path, header: Sequence[Encoding], heads: np.ndarray, *, computed: bool) -> Encoding:
    index = int(heads["encoding_space_ref"][0])
    if index >= len(header):
        raise Refused(f"{path} has readouts of encoding {index} and {len(header)} in its header: complete its header")
    if _flagged(heads, *COMPRESSED).any():
        raise Refused(f"{path} has compressed readouts: copy it with what packed them")
    steps, one = np.unique(heads["idx"]["kspace_encode_step_2"]).tolist(), header[index]
    if one.matrix[2] == 1 and len(steps) > 1:
        raise Refused(f"{path} has steps {steps[:20]} along z and an encoded matrix of one pixel: complete its header")
    if computed and one.trajectory != "cartesian":
        none = f"{path} has a {one.trajectory or 'nameless'} scan without trajectories"
        raise Refused(f"{none}: add them to the file, or give the points")
    if computed and _flagged(heads, REVERSED).any():
        raise Refused(f"{path} has reversed readouts, as of EPI: turn them round and correct their phase first")
    return one


def _samples(
    data: "h5py.Dataset", kept: np.ndarray, heads: np.ndarray, used: list[np.ndarray], coils: int, dims: int
) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum([len(one) for one in used])
    values, points = np.empty((coils, ends[-1]), np.complex64), np.empty((ends[-1], dims))
    for first in range(0, len(data), TOGETHER):
        numbers = np.flatnonzero((kept >= first) & (kept < first + TOGETHER))
        rows = data[first : first + TOGETHER] if len(numbers) else ()
        for number in numbers:
            row, own, many = rows[kept[number] - first], used[number], int(heads["number_of_samples"][number])
            at = slice(ends[number] - len(own), ends[number])
            values[:, at] = np.ascontiguousarray(row["data"]).view("c8").reshape(coils, many)[:, own]
            points[at] = np.ascontiguousarray(row["traj"]).view("f4").reshape(many, dims)[own]
    return values, points


def _used(path: Path, heads: np.ndarray, numbers: int) -> list[np.ndarray]:
    firsts, ends = heads["discard_pre"], heads["number_of_samples"].astype(int) - heads["discard_post"]
    if (ends <= firsts).any() or not heads["active_channels"].all():
        raise Refused(f"{path} has readouts without samples, or of no coil: leave them out of the file")
    try:
        check_held(8 * numbers * int((ends - firsts).sum()), f"all of {path}", "select fewer readouts")
    except MemoryError as error:
        raise Refused(str(error)) from None
    return [np.arange(first, end) for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]


def _cartesian(encoding: Encoding, heads: np.ndarray, used: list[np.ndarray]) -> np.ndarray:
    counts, idx = [len(own) for own in used], heads["idx"]
    x = (np.concatenate(used) - np.repeat(heads["center_sample"].astype(float), counts)) / encoding.matrix[0]
    steps = np.stack([idx["kspace_encode_step_1"], idx["kspace_encode_step_2"]], -1).astype(float)
    rest = (steps - encoding.centres) / encoding.matrix[1:]
    rest[:, 1] *= encoding.matrix[2] > 1  # a single plane is in the middle
    return np.column_stack([x, np.repeat(rest, counts, axis=0)])


def _coordinates(path: Path, encoding: Encoding, points: np.ndarray) -> np.ndarray:
    """One coordinate for each dimension of the image; drops a zero third one, and refuses a weight."""
    dims = len(encoding.sizes)
    if points.shape[1] == 3 and dims == 2 and not points[:, 2].any():
        return points[:, :2]
    if points.shape[1] != dims:
        both = f"{path} has trajectories of {points.shape[1]} coordinates and an encoded matrix of {encoding.matrix}"
        raise Refused(f"{both}: give {dims}, without weights, or complete its header")
    return points
