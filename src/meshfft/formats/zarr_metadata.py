"""Groups and arrays of a Zarr store, of formats 2 and 3: what describes them, and which files are theirs.

The numbers and sizes of an array are parsed by tensorstore. Invariant: no file outside the store is read.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .record import conformed
from .source import DTYPES, Refused

KEY = "meshfft"  # the attribute of what is written here: of an array its record, of a group the name of its array
NAMES = ("zarr.json", ".zarray", ".zgroup")
JSON_BYTES = 2**22
V3_TYPES = [dtype.name for dtype in DTYPES]


class Described(NamedTuple):
    """The names of an array's dimensions, None where not all have one, and its attributes."""

    dims: tuple[str, ...] | None
    attributes: dict[str, Any]


class Node(NamedTuple):
    """An array or a group in a store.

    Attributes:
        path: the store, as the user named it.
        root: its folder, without links.
        folder: that of the array or group, the root itself or one below it.
    """

    path: Path
    root: Path
    folder: Path

    def below(self, name: str) -> "Node":
        return self._replace(folder=self.folder / name)

    @property
    def name(self) -> str:
        return "" if self.folder == self.root else self.folder.relative_to(self.root).as_posix()

    @property
    def third(self) -> bool:
        """Whether it is of format 3."""
        return (self.folder / "zarr.json").exists()

    @property
    def is_array(self) -> bool:
        if self.third:
            return self.json("zarr.json").get("node_type") == "array"
        return (self.folder / ".zarray").exists()

    def check_inside(self, file: Path) -> None:
        """Raises Refused where a link leads out of the store."""
        inside = not file.is_symlink() or file.resolve().is_relative_to(self.root)
        away = f"{self.path} has {file.relative_to(self.root)}, a link that leads out of it: give the store itself"
        if not inside:
            raise Refused(away)

    def json(self, name: str) -> dict[str, Any]:
        """A JSON object of a plain file, in which nothing is named twice."""
        file = self.folder / name
        self.check_inside(file)
        if not file.is_file() or not file.stat().st_size <= JSON_BYTES:
            raise ValueError(f"{name} is no file of at most 4 MiB")
        found = json.loads(file.read_bytes(), object_pairs_hook=_once)
        if not isinstance(found, dict):
            raise ValueError(f"{name} is no object")
        return found

    def document(self) -> dict[str, Any]:
        """What an array says of itself."""
        return self.json("zarr.json" if self.third else ".zarray")

    def check_numbers(self) -> None:
        """Raises Refused where an array is not of numbers."""
        given = self.document().get("data_type" if self.third else "dtype")
        known = isinstance(given, str) and (
            given in V3_TYPES if self.third else np.dtype(given).newbyteorder("=") in DTYPES
        )
        odd = f"{self.path} holds values of type {str(given)[:40]!r}, which are not loaded"
        if not known:
            raise Refused(f"{odd}: give an array of integers, or of real or complex numbers")

    def attributes(self) -> dict[str, Any]:
        if self.third:
            found = self.json("zarr.json").get("attributes", {})
            return found if isinstance(found, dict) else {}
        return self.json(".zattrs") if (self.folder / ".zattrs").exists() else {}

    def described(self) -> Described:
        """What an array says of its dimensions, as Zarr of format 3 does, or as xarray does in format 2."""
        doc, attributes = self.document(), self.attributes()
        if doc.get("zarr_format") == 2 and doc.get("fill_value"):  # as xarray; 0 stands there for no reason
            attributes = {"_FillValue": doc["fill_value"], **attributes}
        names = doc.get("dimension_names") or attributes.get("_ARRAY_DIMENSIONS")
        return Described(() if doc.get("shape") == [] else _names(names), attributes)

    def arrays(self) -> Iterator["Node"]:
        """All arrays of a group, through groups that are folders of their own."""
        groups = [self]
        while groups:
            group = groups.pop()
            for folder in sorted(group.folder.iterdir()):
                self.check_inside(folder)
                if is_zarr(folder) and not folder.is_symlink():
                    node = group.below(folder.name)
                    if node.is_array:
                        yield node
                    else:
                        groups.append(node)


def is_zarr(path: Path) -> bool:
    """True for the folder of a Zarr array or group, of format 2 or 3."""
    return path.is_dir() and any((path / name).is_file() for name in NAMES)


def _names(given: Any) -> tuple[str, ...] | None:
    """Names that can be those of dimensions: short lines, each another."""
    try:
        found = conformed(tuple[str, ...], given)
    except ValueError:
        return None
    return found if all(found) and len(set(found)) == len(found) else None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two readers one might take the first value, and the other the last."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name that is given twice")
    return found


def plain_files(folder: Path) -> list[Path]:
    """The files in a folder that has nothing else, no link and no pipe.

    Raises:
        ValueError: it has.
    """
    found = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    odd = next((path for path in found if path.is_symlink() or not path.is_file()), None)
    if odd is not None:
        raise ValueError(f"{odd} is a link or no file: copy the store, with what its links lead to")
    return found
