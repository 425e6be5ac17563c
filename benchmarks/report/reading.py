"""Reading: files of rows into their lines, each one JSON object.

What a row is comes later (`kinds`). A line that is no object is refused here, with its number: the file was cut short
or is of another kind. Texts lose what no page can hold, control characters and halves of surrogate pairs.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from meshfft.errors import check

REMEDY = "give a file that --rows wrote"
UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Line(NamedTuple):
    """One row of a file: where it stands and what it says."""

    path: str
    number: int
    values: dict[str, Any]

    @property
    def place(self) -> str:
        """Where it stands, in words."""
        return f"line {self.number} of {self.path}"


def read(paths: Sequence[Path]) -> list[Line]:
    """The rows of some files, in their order.

    Raises:
        ValueError: a line is no JSON object, or a file has none.
        OSError: a file cannot be read.
    """
    return [line for path in paths for line in _lines(path)]


def _lines(path: Path) -> list[Line]:
    parts = enumerate(path.read_bytes().splitlines(), 1)
    found = [_line(str(path), number, part) for number, part in parts if part.strip()]
    check(bool(found), f"{path} holds no row: {REMEDY}")
    return found


def _line(path: str, number: int, part: bytes) -> Line:
    try:
        values = json.loads(part.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"line {number} of {path} is no JSON: {REMEDY}, or take the line out") from error
    check(isinstance(values, dict), f"line {number} of {path} is no JSON object: {REMEDY}, or take the line out")
    return Line(path, number, _clean(values))


def _clean(value: Any) -> Any:
    """The value with texts that a page can hold."""
    if isinstance(value, str):
        return UNFIT.sub("", value)
    if isinstance(value, list):
        return [_clean(one) for one in value]
    return {_clean(name): _clean(one) for name, one in value.items()} if isinstance(value, dict) else value
