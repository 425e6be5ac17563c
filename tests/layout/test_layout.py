"""Layouts: where every position of an array is stored."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from jax.sharding import PartitionSpec as P
from strategies import Case, cases

from meshfft.layout.elements import _counted
from meshfft.layout.layout import Cut, Layout, from_spec


def _layout(case: Case) -> Layout:
    return from_spec(case.shape, dict(zip("xyzw", case.mesh, strict=False)), case.spec)


@given(cases())
def test_blocks_hold_every_position_once(case: Case) -> None:
    """Catches a block that misses, repeats or misplaces a position at uneven sizes."""
    layout = _layout(case)
    for dim, n in enumerate(case.shape):
        starts, counts = layout.starts(dim), layout.counts(dim)
        held = np.concatenate([np.arange(a, a + c) for a, c in zip(starts, counts, strict=True)])
        assert held.tolist() == list(range(n))
        assert len(starts) == layout.parts[dim] and max(counts) <= layout.block[dim]


@given(cases())
def test_spec_layouts_are_padded_at_the_tail_as_little_as_can_be(case: Case) -> None:
    """Catches padding inside an array, or more of it than equal blocks need."""
    layout = _layout(case)
    assert layout.tail
    for stored, n, parts in zip(layout.storage, case.shape, layout.parts, strict=True):
        assert stored % parts == 0 and 0 <= stored - n < parts


def test_cuts_that_do_not_nest_keep_their_positions() -> None:
    """Catches the flat formula index * block where an inner cut does not divide the outer span."""
    layout = Layout((10,), ((Cut("x", 2, 5), Cut("y", 2, 3)),))
    assert layout.starts(0).tolist() == [0, 3, 5, 8]
    assert layout.counts(0).tolist() == [3, 2, 3, 2]
    assert layout.block == (3,) and not layout.tail


def test_spec_and_layout_round_trip() -> None:
    """Catches an axis lost or reordered between a PartitionSpec and a layout."""
    sizes = {"x": 2, "y": 3, "z": 4}
    for spec in (P("x", None, "z"), P(("z", "x"), None, "y"), P(None, ("y", "x"), None), P(None, None, None)):
        assert from_spec((24, 24, 24), sizes, spec).spec == spec


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (P("q"), ["'q'", "x=2, y=4"]),
        (P("x", "x"), ["'x' twice"]),
        (P(None, None, "x"), ["3 entries", "2 dimensions"]),
        (P(("x", 3)), ["3", "not a mesh axis name"]),
    ],
)
def test_a_spec_that_does_not_fit_is_refused_by_name(spec: P, words: list[str]) -> None:
    """Catches a wrong spec that passes, or an error without the wrong entry and the remedy."""
    with pytest.raises(ValueError) as caught:
        from_spec((8, 8), {"x": 2, "y": 4}, spec)
    assert all(word in str(caught.value) for word in words)


def test_labels_read_as_in_the_literature() -> None:
    """Catches a label that hides an axis or which dimension is transformed."""
    layout = from_spec((8, 8, 8), {"x": 2, "y": 2}, P(("x", "y"), None, None))
    assert layout.label() == "A[X_xy, Y, Z]"
    assert layout.label(frozenset({1})) == "A[X_xy, Y', Z]"
    assert from_spec((8,), {"rows": 2}, P("rows")).label() == "A[X_rows]"
    assert len(set(itertools.chain(from_spec((1,) * 8, {}, None).label()))) > 8


def test_positions_that_32_bits_do_not_count_are_refused() -> None:
    """Catches positions that become negative: JAX makes an int32 of 2^31 without an error."""
    with pytest.raises(ValueError, match="over 2147483648 positions, which 32 bits do not count: split it in two"):
        _counted(from_spec((2**32,), {"x": 2}, P("x")).starts(0))
