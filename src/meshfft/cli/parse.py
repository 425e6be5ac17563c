"""What the texts of flags mean; a text that means nothing is refused with an example of one that does."""

import math
import re
from collections.abc import Sequence
from typing import Any

from ..numerics.dtypes import PRECISIONS
from ..operators.transform import KINDS, NORMS
from ..walks.candidates import METHODS
from ..walks.choice import ORDERS

MESH_AXES = ("x", "y", "z", "w")
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
CHOICES: dict[str, Sequence[str]] = {
    "method": tuple(METHODS),
    "order": ORDERS,
    "norm": NORMS,
    "kind": KINDS,
    "precision": PRECISIONS,
}
MOST_DIMENSIONS, MOST_SIZE, MOST_COUNT = 32, 2**60, 10**6  # beyond which numbers are slips of the hand
DIGITS = r"[0-9]{1,19}"
SpecEntry = None | str | tuple[str, ...]


def mesh(text: str) -> dict[str, int]:
    """The sizes of the mesh axes x, y, z, w, by name."""
    parts = sizes(text, "--mesh", "2,2,2")
    if len(parts) > len(MESH_AXES):
        raise ValueError(f"--mesh {text} has {len(parts)} axes: give at most {len(MESH_AXES)}, as 2,2,2")
    return dict(zip(MESH_AXES, parts, strict=False))


def sizes(text: str, flag: str, example: str) -> tuple[int, ...]:
    """Positive integers between commas, of an array or a mesh that can be."""
    words = [word.strip() for word in text.split(",")]
    found = tuple(int(word) for word in words if re.fullmatch(DIGITS, word))
    right = len(found) == len(words) and min(found) > 0
    if not right:
        raise ValueError(
            f"{flag} {text!r} is not a list of sizes: give integers of at least 1 between commas, as {example}"
        )
    can = len(found) <= MOST_DIMENSIONS and math.prod(found) <= MOST_SIZE
    if not can:
        raise ValueError(
            f"{flag} {text!r} is more than any machine has: give at most {MOST_DIMENSIONS} sizes, as {example}"
        )
    return found


def axes(text: str | None) -> tuple[int, ...] | None:
    """The dimensions to transform; negative ones count from the last."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    right = len(words) <= MOST_DIMENSIONS and all(re.fullmatch("-?" + DIGITS, word) for word in words)
    if not right:
        raise ValueError(f"--axes {text!r} is not a list of dimensions: give integers between commas, as 0,1,2")
    return tuple(int(word) for word in words)


def count(number: int, flag: str, what: str) -> int:
    """A number of times, or of things, that can be."""
    if not 0 < number <= MOST_COUNT:
        raise ValueError(f"{flag} {number} is not a number of {what}: give 1 to {MOST_COUNT}")
    return number


def spec(text: str | None, mesh: dict[str, int], ndim: int) -> tuple[SpecEntry, ...]:
    """The mesh axes cutting each dimension; without a text, axis i cuts dimension i."""
    if text is not None:
        words = text.split(",")
        right = f"give one entry for each of at most {MOST_DIMENSIONS} dimensions, as x,y+z,-"
        if len(words) > MOST_DIMENSIONS:
            raise ValueError(f"--spec has {len(words)} entries: {right}")
        return tuple(_entry(word.strip()) for word in words)
    given = ",".join(str(size) for size in mesh.values())
    example = "+".join(mesh)
    if len(mesh) > ndim:
        raise ValueError(
            f"--mesh {given} has {len(mesh)} axes and the array has {ndim} dimensions: "
            f"give at most {ndim} axes, or cut a dimension by several, as --spec {example}"
        )
    return tuple(mesh)


def given(axes_text: str | None, **names: str | None) -> dict[str, Any]:
    """What `meshfft.plan` is to be given, by those of the flags that were: None stays None."""
    chosen = {name: None if text is None else choice(text, CHOICES[name], f"--{name}") for name, text in names.items()}
    return {"axes": axes(axes_text), **chosen}


def nbytes(text: str, flag: str) -> int:
    """A number of bytes: a number and a unit."""
    match = re.fullmatch(rf"({DIGITS}(?:\.[0-9]{{0,19}})?) ?([kMGT]i?)?B?", text.strip())
    size = int(float(match[1]) * UNITS[match[2] or ""]) if match else 0
    if not size > 0:
        raise ValueError(f"{flag} {text!r} is no size: give a number of bytes, as 8GB, 512MB or 1.5GiB")
    return size


def choice(text: str, names: Sequence[str], flag: str) -> str:
    """The text, if it is one of the names."""
    if text not in names:
        raise ValueError(f"{flag} {text!r} is not known: give one of {', '.join(names)}")
    return text


def _entry(word: str) -> SpecEntry:
    if word in ("", "-"):
        return None
    return tuple(word.split("+")) if "+" in word else word
