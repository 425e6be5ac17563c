"""In and out: padding, reading by blocks, and refusals."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from reference import mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.layout.padded_array import stored_of


@given(cases())
def test_shard_then_gather_is_the_identity(case: Case) -> None:
    """Catches a position lost or moved, padding that is not zero, and more padding than equal blocks need."""
    x = noise(case.shape)
    for array in (x, jax.numpy.asarray(x)):
        stored = mf.shard(array, mesh(case.mesh), case.spec)
        np.testing.assert_array_equal(mf.gather(stored), x)
        assert np.count_nonzero(stored_of(stored)) == np.count_nonzero(x)
        assert stored.sharding.is_equivalent_to(NamedSharding(mesh(case.mesh), case.spec), x.ndim)


class _Watched:
    """An array that remembers the largest slice ever read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype, self.largest = array, array.shape, array.dtype, 0

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        part = self.array[index]
        self.largest = max(self.largest, part.size)
        return part


def test_every_block_is_read_by_itself() -> None:
    """Catches a reader that pulls the whole array through one host buffer."""
    source = _Watched(noise((17, 13, 5)))
    stored = mf.shard(source, mesh((2, 4)), P("x", "y"))
    np.testing.assert_array_equal(mf.gather(stored), source.array)
    assert source.largest <= 9 * 4 * 5


def test_a_numpy_array_is_put_on_a_mesh_inside_jit() -> None:
    """Catches traced blocks: data in memory or in a file is sent to its devices immediately."""
    x, over = noise((7, 3)), mesh((2, 4))
    doubled = jax.jit(lambda factor: factor * mf.shard(x, over, P("x", "y")))(2.0)
    np.testing.assert_array_equal(mf.gather(doubled), 2 * x)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_an_array_without_elements_is_gathered(kind: AxisType) -> None:
    """Catches the join of shards that have no elements: of a program's result on Explicit axes JAX fails at it."""
    x = mf.shard(np.zeros((0, 8, 3), "c8"), mesh((2, 4), kind), P("x", "y"))
    for y in (x, mf.fftn(x, axes=(1, 2)), mf.fftn(x, (7, 3), (1, 2))):
        found = mf.gather(y)
        assert found.shape == y.shape and found.dtype == np.complex64


def test_a_sharding_says_mesh_and_spec() -> None:
    """Catches a NamedSharding that is taken for a mesh, and one with a second spec."""
    x, where = noise((7, 3)), NamedSharding(mesh((2,)), P(None, "x"))
    found = mf.shard(x, where)
    assert isinstance(found, mf.PaddedArray) and found.spec == where.spec
    np.testing.assert_array_equal(mf.gather(found), x)
    with pytest.raises(TypeError, match="leave spec out"):
        mf.shard(x, where, P())
    with pytest.raises(TypeError, match="spec is missing: say which mesh axes"):
        mf.shard(x, mesh((2,)))


def test_wrong_arguments_are_refused() -> None:
    """Catches objects, specs that do not fit, meshes without devices, and a padded array of another mesh."""
    with pytest.raises(TypeError, match="dtype object is not numeric"):
        mf.shard(np.array([None, 1]), mesh((2,)), P("x"))
    with pytest.raises(TypeError, match=r"AbstractMesh: give a jax.sharding.Mesh"):
        mf.shard(np.zeros(4), mesh((2,)).abstract_mesh, P("x"))
    stored = mf.shard(noise((3, 5)), mesh((2,)), P("x"))
    with pytest.raises(TypeError, match=r"AbstractMesh: give a jax.sharding.Mesh"):
        mf.shard(stored, mesh((2,)).abstract_mesh, P("x"))
    for over, spec in ((mesh((4,)), P("x")), (mesh((2,)), P())):
        with pytest.raises(ValueError, match=r"mf.shard\(mf.gather\(x\), mesh, spec\)"):
            mf.shard(stored, over, spec)
    with pytest.raises(ValueError, match="'q'"):
        mf.shard(stored, mesh((2,)), P("q"))
    with pytest.raises(TypeError, match=r"dtype timedelta64\[s\] is not numeric"):
        mf.shard(np.zeros(4, "m8[s]"), mesh((2,)), P("x"))
    with pytest.raises(ValueError, match=r"has unreduced or reduced axes \(x\)"):
        mf.shard(np.zeros(4), mesh((2,)), P(None, unreduced={"x"}))


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int32"])
@given(cases(), st.data())
def test_a_padded_array_is_sharded_anew(dtype: str, case: Case, data: st.DataObject) -> None:
    """Catches a number lost, rounded or moved on the way to another layout, and a copy where nothing changes."""
    over, x = mesh(case.mesh), (100 * noise(case.shape)).real.astype(dtype)
    axes = data.draw(st.permutations([axis for entry in case.spec for axis in entry or ()]))
    entries: list[tuple[str, ...]] = [()] * len(case.shape)
    for axis in axes:
        dim = data.draw(st.integers(0, len(entries) - 1))
        entries[dim] = (*entries[dim], axis)
    there = P(*(entry or None for entry in entries))
    stored, expected = mf.shard(x, over, case.spec), mf.shard(x, over, there)
    if not isinstance(stored, mf.PaddedArray):
        return
    try:
        found = mf.shard(stored, over, there)
    except ValueError as refused:  # where several axes change places, there need not be a walk
        assert len(axes) > 1 and "as blocks are padded: give " in str(refused), refused
        return
    assert type(found) is type(expected) and found.dtype == expected.dtype
    assert found.sharding.is_equivalent_to(expected.sharding, x.ndim)
    np.testing.assert_array_equal(stored_of(found), stored_of(expected))
    assert mf.shard(stored, over, case.spec) is stored


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_padded_array_is_sharded_anew_inside_jit(kind: AxisType) -> None:
    """Catches a traced array with an unknown mesh or layout, and a spectrum of any order with a wrong layout."""
    x, over = noise((7, 9, 5)), mesh((2, 4), kind)
    plan = mf.plan(x.shape, mesh=over, spec=P("x", "y"), order="any")
    program = jax.jit(lambda y: mf.shard(plan(y), over, P(None, "y", "x")))
    found = program(mf.shard(x, over, P("x", "y")))
    assert found.spec == P(None, "y", "x")
    np.testing.assert_allclose(mf.gather(found), np.fft.fftn(x), atol=1e-4)
