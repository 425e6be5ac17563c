"""What kernels beside all-to-alls read and write: rows of planes, pieces that came, and parts that are sent."""

from typing import NamedTuple

from ...collectives.pieces import Came, Rows


class Ends(NamedTuple):
    """What is read: rows of planes, or of pieces that came; and how it is written: a dimension in parts."""

    rows: Rows | None = None
    came: Came | None = None
    sent: tuple[int, int] | None = None


PLANES = Ends()  # whole planes on both sides
