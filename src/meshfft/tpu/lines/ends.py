"""What kernels beside all-to-alls read and write: rows of planes, pieces that came, and parts that are sent."""

from typing import NamedTuple


class Rows(NamedTuple):
    """Some rows of a dimension: those that are transformed and sent at a time."""

    dim: int
    start: int
    size: int


class Came(NamedTuple):
    """Where pieces lie: see Pieces."""

    source: int
    dim: int
    parts: int
    pieces: int


class Ends(NamedTuple):
    """What is read: rows of planes, or of pieces that came; and how it is written: a dimension in parts."""

    rows: Rows | None = None
    came: Came | None = None
    sent: tuple[int, int] | None = None


PLANES = Ends()  # whole planes on both sides
