"""The picture of a walk: who holds and who gives what, against what JAX does, and every polygon against the layout."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from strategies import Case, cases

import meshfft as mf
from benchmarks.report import walks
from benchmarks.report.blocks import Box, count_of, held, moved, number, received, ring
from benchmarks.report.captions import caption
from benchmarks.report.frames import Frame, frames
from benchmarks.report.panels import HEIGHT, WIDTH, Scene, involved, near_view, panel_of, scene_of, whole_view
from benchmarks.report.projection import NONE, Point, View
from meshfft.collectives.ring import handed_on
from meshfft.layout.layout import Layout, from_spec
from meshfft.plans.primitive import bind
from meshfft.steps import Swap

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

PLANS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((12, 10, 7), (2, 4), {"method": "transpose"}),
    ((9, 7, 5), (2, 2, 2), {"method": "transpose", "order": "any"}),
    ((16, 12), (4, 2), {"method": "transpose"}),
    ((5, 3), (8,), {"method": "transpose"}),
    ((64,), (8,), {"method": "cooley-tukey"}),
    ((6, 8, 4), (2, 4), {"method": "kdft"}),
    ((4, 6, 8, 5), (2, 2), {"kind": "rfft"}),
    ((256, 256, 256), (4, 4), {"kind": "rfft", "topology": "v3:2x4", "order": "any"}),
]


def mesh_of(sizes: dict[str, int]) -> jax.sharding.Mesh:
    """A mesh of the first devices."""
    count = count_of(sizes)
    types = (AxisType.Auto,) * len(sizes)
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), types, devices=jax.devices()[:count])


def planned(shape: tuple[int, ...], mesh: tuple[int, ...], options: dict[str, Any]) -> tuple[mf.Plan, dict[str, int]]:
    """A plan on a described mesh, and the sizes of its axes."""
    sizes = dict(zip("xyzw", mesh, strict=False))
    return mf.plan(shape, mesh=AbstractMesh(mesh, tuple(sizes)), **options), sizes


def everyone(sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """The coordinates of all devices."""
    return list(itertools.product(*map(range, sizes.values())))


@given(cases())
def test_blocks_are_where_jax_puts_them(case: Case) -> None:
    """Catches a block of another device, of nested cuts in another order, and padding that is taken for positions."""
    sizes = dict(zip("xyzw", case.mesh, strict=False))
    layout, mesh = from_spec(case.shape, sizes, case.spec), mesh_of(sizes)
    found = NamedSharding(mesh, case.spec).devices_indices_map(layout.storage)
    for device in everyone(sizes):
        box, slices = held(layout, device, sizes), found[mesh.devices[device]]
        for dim, (part, n) in enumerate(zip(slices, case.shape, strict=True)):
            there = range(*part.indices(layout.storage[dim]))
            assert [p for p in there if p < n] == list(range(box.starts[dim], box.stops[dim]))


@pytest.mark.parametrize(("shape", "mesh"), [((12, 10, 7), (2, 4)), ((9, 7, 5), (2, 2, 2))])
def test_pieces_are_what_the_swap_moves(shape: tuple[int, ...], mesh: tuple[int, ...]) -> None:
    """Catches a giver, a share or a place that a real swap contradicts, in layouts that divide and that do not."""
    sizes = dict(zip("xyz", mesh, strict=False))
    where = mesh_of(sizes)
    swaps = [stage for stage in mf.plan(shape, mesh=where, method="transpose").stages]
    swaps = [stage for stage in swaps if isinstance(stage.walk.steps[0], Swap)]
    assert len(swaps) > 1
    for stage in swaps[:3]:
        before, after = stage.in_layout, stage.out_layout
        (arrived,) = bind([_numbered(before, where)], stage.walk, where)
        for shard in arrived.addressable_shards:
            device = tuple(int(i) for i in np.argwhere(where.devices == shard.device)[0])
            _check_pieces(np.asarray(shard.data).real, before, after, device, sizes)


def _numbered(layout: Layout, mesh: jax.sharding.Mesh) -> jax.Array:
    """An array whose every stored element is the number of the device that stores it."""
    sharding = NamedSharding(mesh, layout.spec)
    numbers = {device: at for at, device in enumerate(mesh.devices.flat)}
    blocks = [jax.device_put(np.full(layout.block, at, np.complex64), device) for device, at in numbers.items()]
    return jax.make_array_from_single_device_arrays(layout.storage, sharding, blocks)


def _check_pieces(block: np.ndarray, before: Layout, after: Layout, device: Any, sizes: dict[str, int]) -> None:
    """Holds the pieces of a device against what it was sent; together they are all that it holds."""
    mine, seen = held(after, device, sizes), 0
    for piece in received(before, after, device, sizes):
        spans = zip(piece.box.starts, piece.box.stops, mine.starts, strict=True)
        part = block[tuple(slice(start - first, stop - first) for start, stop, first in spans)]
        assert part.size == piece.box.points and (part == number(piece.giver, sizes)).all()
        seen += part.size
    assert seen == mine.points


@pytest.mark.parametrize("axes", [("y",), ("x", "y"), ("y", "x")])
def test_rings_are_gone_as_jax_goes_them(axes: tuple[str, ...]) -> None:
    """Catches blocks said to arrive in another order, or round another ring, than they do."""
    sizes = {"x": 2, "y": 4}
    mesh, spec = mesh_of(sizes), PartitionSpec(("x", "y"))

    def passing(own: jax.Array) -> jax.Array:
        steps = [own]
        for _ in range(int(np.prod([sizes[axis] for axis in axes])) - 1):
            steps.append(handed_on(steps[-1], axes, -1))
        return jnp.stack(steps, 1)

    found = jax.jit(jax.shard_map(passing, mesh=mesh, in_specs=spec, out_specs=spec))(jnp.arange(8))
    for device in everyone(sizes):
        assert found[number(device, sizes)].tolist() == [number(one, sizes) for one in ring(axes, device, sizes)]


@pytest.mark.parametrize(("shape", "mesh", "options"), PLANS)
def test_frames_are_the_walk(shape: tuple[int, ...], mesh: tuple[int, ...], options: dict[str, Any]) -> None:
    """Catches a step left out or shown twice, layouts that do not follow each other, and traffic miscounted."""
    made, sizes = planned(shape, mesh, options)
    found = frames(made.walk, made.dtype.itemsize, sizes, (0,) * len(sizes))
    assert found[0].layout == made.in_layout and found[-1].layout == made.out_layout
    assert all(one.layout == other.before for one, other in itertools.pairwise(found))
    assert found[-1].done == set(made.transform.dims)
    assert sum(frame.sent for frame in found) == made.work.sent_bytes
    assert [int(frame.mark.rstrip("ab")) for frame in found[1:]] == sorted(
        int(frame.mark.rstrip("ab")) for frame in found[1:]
    )
    assert any(frame.chunks > 1 for frame in found) == ("topology" in options)
    assert all(bool(moved(frame.before, frame.layout)) == bool(frame.pieces) for frame in found)
    assert all(bool(involved(frame)) == (frame.sent > 0) for frame in found)


@pytest.mark.parametrize(("shape", "mesh", "options"), PLANS)
def test_every_spot_of_the_picture_is_told_truly(
    shape: tuple[int, ...], mesh: tuple[int, ...], options: dict[str, Any]
) -> None:
    """Catches a polygon in the wrong place, of the wrong device, two on one spot, and a spot without one."""
    made, sizes = planned(shape, mesh, options)
    found = frames(made.walk, made.dtype.itemsize, sizes, (0,) * len(sizes))
    scene = scene_of(found, sizes, (0,) * len(sizes))
    for frame in found:
        panel = panel_of(frame, scene)
        blocks = [shape for shape in panel.shapes if shape.look != "piece"]
        view = whole_view(scene)
        boxes = {number(device, sizes): held(frame.layout, device, sizes) for device in everyone(sizes)}
        for spot, at in _spots(Box((0,) * len(scene.most), frame.layout.shape), scene):
            (shape_there,) = [one for one in blocks if inside(spot(view), one.corners)]
            assert holds(boxes[shape_there.device], at)
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for one in panel.shapes for x, y in one.corners)


def _spots(box: Box, scene: Scene) -> list[tuple[Any, tuple[int, ...]]]:
    """Places at the front of a box, and the positions that are there."""
    dims = [dim for dim in scene.dims if dim != NONE]
    found = []
    for plane in dims if len(dims) == 3 else [None]:
        others = [dim for dim in dims if dim != plane]
        ranges = [np.unique(np.linspace(box.starts[d], box.stops[d] - 1, 5).astype(int)) for d in others]
        for chosen in itertools.product(*ranges):
            at = list(box.starts)
            for dim, position in zip(others, chosen, strict=True):
                at[dim] = int(position)

            def spot(view: View, at: list[int] = at, plane: Any = plane) -> Point:
                return view.at([0.5 if dim == NONE else at[dim] + 0.5 * (dim != plane) for dim in scene.dims])

            found.append((spot, tuple(at)))
    return found


def inside(point: Point, corners: Any) -> bool:
    """True where a point lies within a convex polygon, whichever way its corners go."""
    pairs = itertools.pairwise([*corners, corners[0]])
    turns = [(b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0]) for a, b in pairs]
    return all(turn >= -1e-6 for turn in turns) or all(turn <= 1e-6 for turn in turns)


def holds(box: Box, at: tuple[int, ...]) -> bool:
    """True where a position is in a box."""
    return all(start <= p < stop for start, p, stop in zip(box.starts, at, box.stops, strict=True))


def test_the_block_that_is_drawn_larger_shows_who_gave_what() -> None:
    """Catches parts of the followed block in the colour of another giver, or in another place."""
    made, sizes = planned((12, 10, 7), (2, 4), {"method": "transpose"})
    found = frames(made.walk, 8, sizes, (0, 0))
    scene = scene_of(found, sizes, (0, 0))
    swapped = [frame for frame in found if frame.pieces]
    assert len(swapped) == 4
    for frame in swapped:
        parts = [shape for shape in panel_of(frame, scene).shapes if shape.look == "piece"]
        mine = held(frame.layout, (0, 0), sizes)
        before = {number(device, sizes): held(frame.before, device, sizes) for device in everyone(sizes)}
        for spot, at in _spots(mine, scene):
            (part,) = [one for one in parts if inside(spot(near_view(mine, scene)), one.corners)]
            assert holds(before[part.device], at)


def test_captions_say_what_happens() -> None:
    """Catches words about another number of devices, another share, or traffic where there is none."""
    made, sizes = planned((16, 12), (8,), {"method": "transpose"})
    found = frames(made.walk, 8, sizes, (0,))
    words = [caption(frame, scene_of(found, sizes, (0,))).replace("\u00a0", " ") for frame in found]
    assert words[0] == "Every device holds a block of 2 \u00d7 12."
    assert words[1].startswith(
        "Device 0 keeps 2 \u00d7 2 and is given 2 \u00d7 2 by each of 7 others. Every device sends"
    )
    assert words[2] == "Every line along X lies on one device, which transforms it alone. Nothing is sent."
    made, sizes = planned((64,), (8,), {"method": "cooley-tukey"})
    (_, frame) = found = frames(made.walk, 8, sizes, (0,))
    words = [caption(frame, scene_of(found, sizes, (0,)))]
    assert "gathers one sample in 8 along X" in words[0] and "7 others" in words[0]


def test_parts_exchanged_in_place_are_told() -> None:
    """Catches a step that sends, and leaves the layout, told as one that sends nothing."""
    layout = from_spec((16,), {"x": 4}, PartitionSpec("x"))
    devices = tuple((place,) for place in range(4))
    frame = Frame("1", "six steps", layout, layout, (0,), gathering=devices, rounds=3, sent=1000)
    words = caption(frame, scene_of([frame], {"x": 4}, (0,)))
    assert words.startswith("Device 0 and the 3 others along X exchange parts 3 times") and "1.00 kB" in words


def test_both_ways_round_a_ring() -> None:
    """Catches blocks of a ring that is gone both ways told in the order of one."""
    devices = tuple((place,) for place in range(5))
    layout = from_spec((10,), {"x": 5}, PartitionSpec("x"))
    frame = Frame("1", "ring", layout, layout, passing=devices, two_way=True)
    assert [at for (at,) in involved(frame)] == [0, 1, 4, 2, 3]


def test_nothing_is_not_drawn() -> None:
    """Catches a division by zero where the array is empty."""
    made = mf.plan((0, 4), mesh=AbstractMesh((2,), ("x",)), axes=(1,))
    with pytest.raises(ValueError, match="no elements"):
        walks.section(made)


@pytest.mark.parametrize(
    ("shape", "mesh"), [((1,), (1,)), ((2, 3), (1, 2)), ((1, 1, 1, 5), (1, 1, 1, 5)), ((700,), (300,))]
)
def test_every_array_has_a_picture(shape: tuple[int, ...], mesh: tuple[int, ...]) -> None:
    """Catches one device, idle axes, dimensions of one position, four of them, and many devices."""
    made, sizes = planned(shape, mesh, {})
    found = walks.section(made)
    assert len(found.panels) == 2 + len(frames(made.walk, 8, sizes, (0,) * len(sizes))) - 1
    assert all("<polygon" in panel.drawing or "<rect" in panel.drawing for panel in found.panels)
