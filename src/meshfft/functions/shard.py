"""Arrays on a mesh: shard(shard(x, mesh, a), mesh, b) = shard(x, mesh, b)."""

from jax import Array
from jax.sharding import Mesh, NamedSharding

from ..layout.layout import Spec, axis_sizes, from_spec
from ..layout.padded_array import OVER_HOST, AnyStored, PaddedArray
from ..layout.storage import Sliceable, stored_on
from ..plans.execute import moved


def shard(array: Sliceable | Array | PaddedArray, mesh: Mesh | NamedSharding, spec: Spec | None = None) -> AnyStored:
    """Puts an array on a mesh, stored with zeros at the tail of every
    dimension that its mesh axes do not divide.

        stored size = p ceil(n / p)   for p shards of a dimension of n positions

    Args:
        array: a NumPy or JAX array, or anything with `shape`, `dtype` and
            slices, such as an open file: each process reads its devices'
            blocks, one by one. All processes must see the same array. A
            PaddedArray of this mesh is moved to another spec of the same axes.
        mesh: a concrete device mesh; or a NamedSharding, which has a spec.
        spec: a PartitionSpec; mesh axes may share a dimension, or cut none.

    Returns:
        A jax.Array if the mesh axes divide all sizes; else a PaddedArray, which
        every function of meshfft takes.

    Raises:
        ValueError: the spec does not fit the array or the mesh, or a padded
            array cannot move to it.
        TypeError: the elements are not numbers; no mesh, or no spec.

    >>> import jax
    >>> from jax.sharding import PartitionSpec as P
    >>> y = mf.shard(np.ones(7), jax.make_mesh((2,), ("x",)), P("x"))
    >>> y.shape, y.stored.shape
    ((7,), (8,))
    """
    if isinstance(mesh, NamedSharding) and spec is not None:
        raise TypeError(f"spec is {spec}, and mesh is a NamedSharding, which has one: leave spec out")
    over, cut = (mesh.mesh, mesh.spec) if isinstance(mesh, NamedSharding) else (mesh, spec)
    if not isinstance(over, Mesh):
        raise TypeError(f"mesh is {type(over).__name__}: give a jax.sharding.Mesh of real devices")
    if cut is None:
        raise TypeError("spec is missing: say which mesh axes cut which dimension, such as P('x', None)")
    return _resharded(array, over, cut) if isinstance(array, PaddedArray) else stored_on(array, over, cut)


def _resharded(array: PaddedArray, mesh: Mesh, spec: Spec) -> AnyStored:
    if array.mesh not in (mesh, mesh.abstract_mesh):
        raise ValueError(f"the padded array is on {array.mesh}, not on {mesh}: {OVER_HOST}")
    return array if array.layout == from_spec(array.shape, axis_sizes(mesh), spec) else moved(array, spec)
