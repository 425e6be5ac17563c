"""Files of scanners from the command line: what an ISMRMRD file says itself need not be said by flags."""

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..io import Source, open_array
from ..io.formats.ismrmrd import Scan, encodings_of, is_scan, read_scan
from ..nufft.points import Scattered
from .request import everywhere
from .scattered import Asked, announce, check_unit_name, dataset_in, points_at, read_points

SELECT = typer.Option(metavar="NAME=I,...", help="Readouts of ISMRMRD: slice=2,repetition=0, or phase=all.")
Select = Annotated[str, SELECT]


@contextlib.contextmanager
def measured(asked: Asked) -> Iterator[tuple[Asked, Source, Scattered]]:
    """What coils have measured and where, and what is asked for, with a unit for points that the command computes."""
    if not is_scan(asked.source, asked.dataset):
        if asked.more["select"]:
            raise ValueError(f"{asked.source} is no ISMRMRD file, of which --select takes readouts: leave it out")
        with open_array(asked.source, dataset_in(asked.source, asked.dataset, "kspace")) as array:
            yield asked, array, everywhere(lambda: read_points(asked, None))
        return
    inside = asked.points is None
    scan = everywhere(lambda: read_scan(asked.source, asked.dataset, asked.more["select"], trajectory=inside))
    announce(asked, f"{asked.source}: {scan.words}.")
    asked = _with_unit(asked, scan) if inside else asked
    read = partial(points_at, asked, scan.points, asked.source) if inside else partial(read_points, asked, None)
    yield asked, scan.values, everywhere(read)


def _with_unit(asked: Asked, scan: Scan) -> Asked:
    """Refuses a unit that is not that of the points."""
    sizes, unit = scan.encoding.sizes, asked.points_unit
    if scan.cartesian and unit not in (None, "turns"):
        turns = f"{asked.source} is Cartesian and its points are computed, in turns"
        raise ValueError(f"{turns}: leave out --points-unit {unit}")
    if not scan.cartesian:
        check_unit_name(unit)
    if unit == "field-of-view" and asked.shape != sizes:
        both = f"{asked.source} encodes a field of view of {sizes} pixels, --shape has {asked.shape}"
        raise ValueError(f"{both}: leave out --shape, or give the points in turns")
    return asked._replace(points_unit=unit or "turns")


def voxel_in(asked: Asked) -> tuple[float, ...] | None:
    """Sizes in mm of a pixel, and of a plane its thickness; None where the header does not say them of these points."""
    found = set(encodings_of(asked.source, asked.dataset)) if is_scan(asked.source, asked.dataset) else set()
    if asked.points is not None or len(found) != 1:
        return None
    (one,) = found
    known = len(asked.shape or ()) == len(one.sizes) and min(one.field_of_view) > 0
    return tuple(size / n for size, n in zip(one.field_of_view, one.matrix, strict=True)) if known else None


def sizes_in(source: Path, dataset: str | None) -> tuple[int, ...] | None:
    """The pixels that a scan encodes; None of another file."""
    if not is_scan(source, dataset):
        return None
    found = {one.sizes for one in encodings_of(source, dataset)}
    if len(found) != 1:
        raise ValueError(f"{source} has encoded matrices {sorted(found)}: give --shape N,N,...")
    return found.pop()
