"""The header of an ISMRMRD file, XML: what was encoded, and in which field of view."""

import math
import xml.etree.ElementTree as tree
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .source import Refused

if TYPE_CHECKING:
    import h5py

MOST_XML = 2**24


class Encoding(NamedTuple):
    """One encoding of a header.

    Attributes:
        trajectory: "cartesian", "radial", ...
        matrix: pixels along x, y and z of the encoded space.
        field_of_view: its sizes in mm.
        centres: the steps 1 and 2 that are in the middle of k-space.
    """

    trajectory: str
    matrix: tuple[int, ...]
    field_of_view: tuple[float, ...]
    centres: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of the image: two, or three where there are pixels along z."""
        return self.matrix if self.matrix[2] > 1 else self.matrix[:2]


def encodings_in(path: Path, xml: "h5py.Dataset") -> list[Encoding]:
    """The header; a document that defines entities could be made to fill the memory, and no header does."""
    text = np.ravel(xml[()])[0]
    text = text.encode() if isinstance(text, str) else bytes(text)
    if len(text) > MOST_XML or b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise Refused(f"{path} has a header of {len(text)} bytes that is none of ISMRMRD's: make it again")
    root = tree.fromstring(text.rstrip(b"\0"))
    return [_one_encoding(path, one) for one in root.iter() if _tag(one) == "encoding"]


def _one_encoding(path: Path, one: tree.Element) -> Encoding:
    def number(at: str, default: str | None = None) -> float:
        found: Any = one
        for name in at.split("/"):
            found = next((child for child in found or () if _tag(child) == name), None)
        text = default if found is None else found.text
        value = float(text) if text else math.nan
        if not 0 <= value < 2**16:
            raise Refused(f"{path} has an encoding without a {at}: complete its header")
        return value

    kind = next((child.text for child in one if _tag(child) == "trajectory"), None)
    matrix = tuple(int(number(f"encodedSpace/matrixSize/{x}")) for x in "xyz")
    if min(matrix) < 1:
        raise Refused(f"{path} has an encoded matrix of {matrix}: complete its header")
    limits = (f"encodingLimits/kspace_encoding_step_{step}/center" for step in (1, 2))
    centres = (int(number(at, str(n // 2))) for at, n in zip(limits, matrix[1:], strict=True))
    sizes = (number(f"encodedSpace/fieldOfView_mm/{x}") for x in "xyz")
    return Encoding((kind or "").strip().lower(), matrix, tuple(sizes), tuple(centres))


def _tag(element: tree.Element) -> str:
    return element.tag.rpartition("}")[2]
