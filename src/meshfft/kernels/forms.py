"""Which local form of gridding is taken, and what it costs: host numbers.

Point by point costs W^d cells a point; tiles cost (tile + W - 1)^d, but as dense products.
"""

from ..numerics.window import Window
from .window_weights import Form

CHUNK = 32  # points of a chunk
TILES = {1: 32, 2: 16, 3: 8}  # cells of a tile in each of so many dimensions


def chosen(window: Window, slack: int, block: tuple[int, ...], points: int, platform: str) -> Form:
    """The form for a window in blocks of a shape."""
    d = len(block)
    kind = "tiles" if (d >= 3 and window.width >= 7) or platform != "cpu" else "gather"
    tile = tuple(min(TILES.get(d, 4), size) for size in block)
    return Form(kind, tile, CHUNK, window.width, slack, window.coefficients)


def cost(form: Form, points: int, d: int, coils: int, itemsize: int, platform: str) -> tuple[int, int]:
    """Operations, and bytes of memory, of a device's points."""
    sides = [form.reach] * d if form.kind == "gather" else [t + form.reach - 1 for t in form.tile]
    cells = 1
    for side in sides:
        cells *= side
    return 4 * cells * coils * points, points * coils * itemsize * (form.reach**d if form.kind == "gather" else 4)
