"""Pictures of plans: every block where JAX has it, in HTML for notebooks and by matplotlib."""

import logging
import sys
from html.parser import HTMLParser

import jax
import numpy as np
import pytest
from hypothesis import given
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.layout.layout import from_spec
from meshfft.numerics.units import bound
from meshfft.plans import execute
from meshfft.walks import picture

PLAN = mf.plan((97, 64, 89), mesh=AbstractMesh((2, 2, 2), ("x", "y", "z")), spec=P("x", "y", "z"))


@given(cases())
def test_blocks_are_where_jax_puts_them(case: Case) -> None:
    """Catches a block of another device, and nested cuts in another order."""
    sizes = dict(zip("xyzw", case.mesh, strict=False))
    layout, count = from_spec(case.shape, sizes, case.spec), int(np.prod(case.mesh))
    mesh = jax.make_mesh(case.mesh, tuple(sizes), (AxisType.Auto,) * len(sizes), devices=jax.devices()[:count])
    held, numbers = picture.owners(layout, sizes), {device: at for at, device in enumerate(mesh.devices.flat)}
    places = NamedSharding(mesh, case.spec).devices_indices_map(layout.storage)
    for shard in np.ndindex(held.shape):
        device = next(one for one, at in numbers.items() if at == held[shard])
        starts = [part.indices(n)[0] for part, n in zip(places[device], layout.storage, strict=True)]
        assert starts == [at * width for at, width in zip(shard, layout.block, strict=True)]


@pytest.mark.parametrize(
    ("shape", "mesh", "boxes", "sides"),
    [
        ((8, 6, 5), (2, 2), 4, 4 + 2 + 2),
        ((5, 3), (8,), 5, 5),
        ((64,), (8,), 8, 8),
        ((4, 6, 8, 5), (2, 2), 4, 4 + 2 + 2),
    ],
)
def test_every_block_is_drawn(shape: tuple[int, ...], mesh: tuple[int, ...], boxes: int, sides: int) -> None:
    """Catches a block that is not drawn, one of padding only that is, and a side with gaps or blocks that overlap."""
    sizes = dict(zip("xy", mesh, strict=False))
    layout = from_spec(shape, sizes, tuple("xy"[: len(mesh)]))
    found = picture.faces(layout, sizes)
    assert len({face.device for face in found}) == boxes and len(found) == sides
    for light in {face.light for face in found}:
        corners = np.array([face.corners for face in found if face.light == light])
        (ax, ay), (bx, by) = (np.moveaxis(corners[:, j] - corners[:, 0], -1, 0) for j in (1, 3))
        area = 1.0 if light == picture.FRONT else picture.DEPTH
        np.testing.assert_allclose(np.abs(ax * by - ay * bx).sum(), area)


def test_every_side_has_the_colour_of_its_block() -> None:
    """Catches sides drawn where another block is: block (i, j, k), cut by z, x and y, is device 4 j + 2 k + i's."""
    sizes, depth = dict.fromkeys("xyz", 2), picture.DEPTH
    for face in picture.faces(from_spec((4, 4, 4), sizes, ("z", "x", "y")), sizes):
        across, down = np.mean(face.corners, axis=0)
        place = {
            picture.FRONT: (down, across, 0),
            picture.TOP: (0, across + down, -down / depth),
            picture.END: (down + across - 1, 1, (across - 1) / depth),
        }[face.light]
        i, j, k = (at > 0.5 for at in place)
        assert face.device == 4 * j + 2 * k + i


@pytest.mark.parametrize("count", [1, 8, 9, 256])
def test_every_device_has_its_colour(count: int) -> None:
    """Catches two devices of one colour."""
    assert len({picture.colour(device, count) for device in range(count)}) == count


class Page(HTMLParser):
    """Counts the tags of a page, and refuses one that is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.counts = list[str](), dict[str, int]()
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_notebooks_show_every_step_with_a_picture() -> None:
    """Catches a row without its picture, HTML that is not well formed, and numbers that print() does not have."""
    text = PLAN._repr_html_()
    counts = Page(text).counts
    assert counts["tr"] == 3 + len(PLAN.walk.steps) and counts["svg"] == 1 + len(PLAN.walk.steps)
    for word in ("A[X&#x27;_x, Y&#x27;_y, Z&#x27;_z]", "device 7", f"error at most {bound(PLAN.error)}"):
        assert word in text, word
    assert len(text) < 30_000  # notebooks keep it
    pod = mf.plan((64,) * 3, mesh=AbstractMesh((32, 32), ("x", "y")))
    assert "svg" not in Page(pod._repr_html_()).counts  # a thousand blocks show nothing


@pytest.mark.quick(0, 3)
@pytest.mark.parametrize("wire", ["exact", "int24", "int16", "bfloat16"])
def test_the_printed_error_is_never_below_that_of_the_plan(wire: str) -> None:
    """Catches a bound that is rounded down, and one for arbitrary points without the caveat about windows."""
    for kind in ("fft", "rfft"):
        plan = mf.plan((97, 64, 89), mesh=PLAN.mesh, spec=P("x", "y", "z"), kind=kind, wire=wire)
        assert float(str(plan).split("error at most ")[1]) >= plan.error
    window = mf.plan((64,), mesh=AbstractMesh((8,), ("x",)), points=[mf.Points.zoom(0.1, 0.2, 8)], wire=wire)
    assert "relative to samples of noise" in " ".join(str(window).split()) and "noise" not in str(PLAN)


def test_show_draws_every_layout() -> None:
    """Catches a step without its picture, and one that is named wrongly."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    figure = PLAN.show()
    titles = [spot.get_title() for spot in figure.axes]
    assert (
        titles[0].startswith("as it comes\n") and max(len(line) for title in titles for line in title.split("\n")) < 40
    )
    assert titles[1].replace("\n", " ").startswith(f"1. {PLAN.walk.steps[0].name(PLAN.in_layout)} ")
    assert len(titles) == 1 + len(PLAN.walk.steps) and titles[-1].split("\n")[-2] == "A[X'_x, Y'_y, Z'_z]"
    assert {text.get_text() for text in figure.axes[0].texts} >= {"X_x", "Y_y", "Z_z", "0", "7"}
    matplotlib.pyplot.close(figure)


def test_show_refuses_what_it_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a missing package that is not named, and a picture of a thousand blocks."""
    with pytest.raises(ValueError, match="1024 devices are more than a picture shows"):
        mf.plan((64,) * 3, mesh=AbstractMesh((32, 32), ("x", "y"))).show()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"a picture of a plan needs matplotlib.pyplot .*pip install .\.\[plots"):
        PLAN.show()


def test_layouts_say_how_they_are_cut() -> None:
    """Catches a repr of nested records, and padding that is not shown."""
    assert repr(PLAN.in_layout) == (
        "<Layout: A[X_x, Y_y, Z_z] of 97 x 64 x 89, cut by x=2, y=2, z=2 into blocks of 49 x 32 x 45, "
        "stored as 98 x 64 x 90>"
    )
    assert repr(mf.plan((8, 6)).in_layout) == "<Layout: A[X, Y] of 8 x 6, cut by nothing into blocks of 8 x 6>"


def test_the_first_call_says_that_it_compiles(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches seconds of silence, a line at every call, and one about a program of `poisson` or of the caller's jit."""
    monkeypatch.setattr(execute, "SLOW", 0.0)
    x = mf.shard(noise((6, 14)), mesh((2,)), P("x"))
    with caplog.at_level(logging.INFO, "meshfft"):
        jax.jit(lambda x: mf.fftn(x, norm="forward", spec=P("x")))(x)
        mf.poisson(x)
        assert not caplog.records
        for _ in range(2):
            mf.fftn(x, norm="forward")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and "A[X_x, Y] of 6 x 14" in said[0] and said[1].startswith("compiled in ")
