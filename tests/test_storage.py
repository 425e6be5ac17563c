"""In and out: padding, reading by blocks, and refusals."""

import jax
import numpy as np
import pytest
from hypothesis import given
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from reference import mesh, noise
from strategies import Case, cases

import meshfft as mf
from meshfft.padded import stored_of


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
    """Catches blocks that are traced: what is in memory or in a file goes to its devices at once."""
    x, over = noise((7, 3)), mesh((2, 4))
    doubled = jax.jit(lambda factor: factor * mf.shard(x, over, P("x", "y")))(2.0)
    np.testing.assert_array_equal(mf.gather(doubled), 2 * x)


def test_wrong_arguments_are_refused() -> None:
    """Catches objects, shapes of another rank, and meshes without devices."""
    with pytest.raises(TypeError, match="dtype object is not numeric"):
        mf.shard(np.array([None, 1]), mesh((2,)), P("x"))
    with pytest.raises(TypeError, match=r"AbstractMesh: give a jax.sharding.Mesh"):
        mf.shard(np.zeros(4), mesh((2,)).abstract_mesh, P("x"))
    stored = mf.shard(noise((3, 4)), mesh((2,)), P("x"))
    with pytest.raises(TypeError, match="sharded and padded already"):
        mf.shard(stored, mesh((2,)), P("x"))
