"""Panels: a frame of a walk as polygons, lines and words with places, which the template writes as SVG.

    left      the whole array, cut into its blocks; a block has the colour of the device that holds it
    right     the block of the device that is followed, drawn larger; after an exchange in the colours of the givers
    below     those devices in turn

Every polygon is a box of `blocks`, so what the picture says is what the layouts say.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from meshfft.layout.layout import Layout, dim_name

from .blocks import Box, Device, Piece, Sizes, box_of, count_of, held, number, outside, owner
from .frames import Frame
from .palette import device_colours, ink_on, shaded
from .projection import NONE, THICK, Point, Room, View, middle, narrowest, shown_dims, sides, view_of
from .runs import times

WIDTH, HEIGHT = 320, 240
WHOLE: Room = (16, 3, 184, 174)
BLOCK: Room = (212, 26, 104, 128)
CHIP, GAP, CHIPS_TOP, MOST_CHIPS = 26, 9, 212, 9
HAIRLINE = 2.5  # a side that is narrower has no outline, which would hide it
AWAY = 10  # a name from its edge
TIGHT, LARGEST = 8.8, 12.0  # the narrowest side that a number fits on, and the size of the largest number
NUMBERED = 100  # devices: of more, numbers would not be read


class Shape(NamedTuple):
    """A side of a block.

    Attributes:
        device: whose colour it has, by number.
        fill: the colour.
        corners: on paper.
        look: "block", "mine", "faded" or "piece".
        words: which device and positions it is.
    """

    device: int
    fill: str
    corners: tuple[Point, ...]
    look: str
    words: str

    @property
    def thin(self) -> bool:
        """True where there is no room for an outline."""
        return narrowest(self.corners) < HAIRLINE


class Word(NamedTuple):
    """A text, its middle, its colour, its look and its size."""

    text: str
    at: Point
    fill: str = ""
    look: str = "number"
    size: float = LARGEST


class Chip(NamedTuple):
    """A small square for a device, or where `text` stands for several, for those left out."""

    text: str
    fill: str
    ink: str
    left: float


class Panel(NamedTuple):
    """Everything in a picture, back to front."""

    title: str
    shapes: tuple[Shape, ...]
    lines: tuple[tuple[Point, Point], ...]
    words: tuple[Word, ...]
    chips: tuple[Chip, ...]
    chips_label: str
    in_turn: bool = False


class Scene(NamedTuple):
    """What all panels of a walk share.

    Attributes:
        sizes: of the mesh axes.
        device: the one that is followed.
        dims: the dimensions shown.
        lengths: how long each is drawn.
        most: the largest size of every dimension during the walk.
        colours: of the devices.
    """

    sizes: Sizes
    device: Device
    dims: tuple[int, ...]
    lengths: tuple[float, ...]
    most: tuple[int, ...]
    colours: tuple[str, ...]

    def colour(self, device: Device) -> str:
        """The colour of a device."""
        return self.colours[number(device, self.sizes)]


def scene_of(frames: Sequence[Frame], sizes: Sizes, device: Device) -> Scene:
    """What the panels of a walk share: one scale, one set of colours."""
    layouts = [frame.layout for frame in frames]
    most = tuple(max(layout.shape[dim] for layout in layouts) for dim in range(layouts[0].ndim))
    cut = sorted({dim for layout in layouts for dim, axes in enumerate(layout.axes) if axes})
    dims = shown_dims(len(most), cut)
    lengths = (THICK, 1.0) if dims[0] == NONE else sides([most[dim] for dim in dims])
    return Scene(sizes, device, dims, lengths, most, tuple(device_colours(count_of(sizes))))


def panel_of(frame: Frame, scene: Scene) -> Panel:
    """The picture of one frame."""
    mine = held(frame.layout, scene.device, scene.sizes)
    whole, near = whole_view(scene), near_view(mine, scene)
    pieces = frame.pieces or (Piece(scene.device, mine),)
    blocks = _blocks(frame, scene, whole)
    parts = [
        _shape(face.plane, face.corners, piece, scene, "piece") for piece in pieces for face in near.faces(piece.box)
    ]
    lines = tuple(line for dim in frame.dims for line in near.lines(mine, dim))
    chips, label = _chips(frame, scene)
    given = _numbers(parts, scene) if frame.pieces else []
    words = (*_numbers(blocks, scene), *given, *_captions(mine, scene), *_names(frame, whole, scene))
    title = f"{frame.mark}. {frame.name}" if frame.mark else frame.name
    return Panel(title, (*blocks, *parts), lines, words, chips, label, bool(frame.passing))


def whole_view(scene: Scene) -> View:
    """How the array lies on paper."""
    return view_of(Box((0,) * len(scene.most), scene.most), scene.dims, scene.lengths, WHOLE)


def near_view(mine: Box, scene: Scene) -> View:
    """How the followed block lies on paper when it is drawn again."""
    return view_of(mine, scene.dims, _lengths(mine, scene), BLOCK)


def involved(frame: Frame) -> list[Device]:
    """The devices that the followed one exchanges with, in the order in which it meets them."""
    if frame.pieces:
        return [piece.giver for piece in frame.pieces]
    return list(_both_ways(frame.passing) if frame.two_way else frame.passing or frame.gathering)


def positions(box: Box) -> str:
    """The positions of a box, in words."""
    spans = zip(box.starts, box.stops, strict=True)
    ndim = len(box.starts)
    return ", ".join(f"{dim_name(dim, ndim)} {start} to {stop - 1}" for dim, (start, stop) in enumerate(spans))


def _blocks(frame: Frame, scene: Scene, view: View) -> list[Shape]:
    """The sides of all blocks at the front, the followed one's last, so that its outline is whole."""
    meets = set(involved(frame))
    found = []
    for device, box in at_front(frame.layout, scene):
        look = "mine" if device == scene.device else "block" if not meets or device in meets else "faded"
        found += [_shape(f.plane, f.corners, Piece(device, box), scene, look) for f in view.faces(box)]
    return sorted(found, key=lambda shape: shape.look == "mine")


def at_front(layout: Layout, scene: Scene) -> list[tuple[Device, Box]]:
    """The blocks that a picture of the array shows, and who holds each."""
    shards = outside(layout, scene.dims)
    found = [(owner(layout, at, scene.sizes), box_of(layout, at)) for at in shards]
    return [(device, box) for device, box in found if box.points]


def _shape(plane: int, corners: tuple[Point, ...], piece: Piece, scene: Scene, look: str) -> Shape:
    colour, device = scene.colour(piece.giver), number(piece.giver, scene.sizes)
    words = f"device {device}: {positions(piece.box)}"
    return Shape(device, shaded(colour, plane) if len(scene.dims) == 3 else colour, corners, look, words)


def _lengths(mine: Box, scene: Scene) -> tuple[float, ...]:
    """How long the sides of the followed block are drawn, against each other; a bar is a bar."""
    if NONE in scene.dims:
        return scene.lengths
    lengths = zip(scene.dims, scene.lengths, strict=True)
    return sides([length * mine.lengths[dim] / scene.most[dim] for dim, length in lengths], 0.2)


def _numbers(shapes: Iterable[Shape], scene: Scene) -> list[Word]:
    """Every device's number on its widest side, where there is room for it."""
    if len(scene.colours) > NUMBERED:
        return []
    best: dict[tuple[int, str], Shape] = {}
    for shape in shapes:
        key = shape.device, shape.words
        if key not in best or narrowest(shape.corners) > narrowest(best[key].corners) + 1e-6:
            best[key] = shape
    return [_number(shape) for shape in best.values() if narrowest(shape.corners) >= TIGHT]


def _number(shape: Shape) -> Word:
    look, size = "faint" if shape.look == "faded" else "number", min(1.05 * narrowest(shape.corners), LARGEST)
    return Word(str(shape.device), middle(shape.corners), ink_on(shape.fill), look, size)


def _names(frame: Frame, view: View, scene: Scene) -> list[Word]:
    """The names of the dimensions, at the edges of the array that run along them; a prime marks a transformed one."""
    found = []
    for dim, (at, (right, down)) in view.edges(Box((0,) * len(scene.most), scene.most)).items():
        name = dim_name(dim, len(scene.most)) + "'" * (dim in frame.done)
        found.append(Word(name, (at[0] + AWAY * right, at[1] + AWAY * down), look="caption"))
    return found


def _captions(mine: Box, scene: Scene) -> list[Word]:
    """What the two drawings are."""
    left, top, width, height = BLOCK
    name = f"device {number(scene.device, scene.sizes)} holds"
    size = times(mine.lengths)
    return [
        Word(name, (left + width / 2, top - 10), look="caption"),
        Word(size, (left + width / 2, top + height + 14), look="caption"),
    ]


def _chips(frame: Frame, scene: Scene) -> tuple[tuple[Chip, ...], str]:
    """The devices that are met, in a row, and what the row is."""
    devices = involved(frame)
    if not devices:
        return (), ""
    shown: list[Device | None] = list(devices)
    if len(devices) > MOST_CHIPS:
        shown = [*devices[: MOST_CHIPS - 2], None, devices[-1]]
    return tuple(_chip(device, place, scene) for place, device in enumerate(shown)), _label(frame)


def _chip(device: Device | None, place: int, scene: Scene) -> Chip:
    left = 4 + place * (CHIP + GAP)
    if device is None:
        return Chip("...", "none", "currentColor", left)
    colour = scene.colour(device)
    return Chip(str(number(device, scene.sizes)), colour, ink_on(colour), left)


def _label(frame: Frame) -> str:
    if frame.pieces:
        return "its block now, by who held it before:"
    what = "sums for" if frame.sums else "blocks of"
    pace = ", two at a time" if frame.two_way else ""
    return f"{what} these pass by, in turn{pace}:" if frame.passing else "exchanges with:"


def _both_ways(devices: Sequence[Device]) -> list[Device]:
    """A ring in the order in which its blocks arrive from both sides."""
    first, *others = devices
    found = [first]
    while others:
        found.append(others.pop(0))
        if others:
            found.append(others.pop())
    return found
