"""Particle mesh: gravity gathers particles in an expanding universe, and devices exchange halos of the grid.

A particle that started at the grid point q is at q + psi. Masses are summed into cells with linear weights (cloud in
cell), and forces are interpolated with the same weights. With the scale factor a as time, and u = d psi / da,

    du / da = -3 / (2 a) (u + grad phi),   laplacian phi = delta / a

Particles stay on one device and may move by WIDTH cells. The device sums their masses into its block of the grid,
extended by WIDTH cells, which `add_halo` adds to the neighbours' blocks. Forces are differences of the potential in a
block that `halo` has extended. NumPy does the same in double precision.

    python examples/particle_mesh.py --picture particles.png        # 32^3 particles; --size 256 --mesh 4,2
"""

import argparse
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, PartitionSpec
from matplotlib.figure import Figure

import meshfft as mf

SPEC, PARTICLES = PartitionSpec("x", "y"), PartitionSpec(None, "x", "y")
WIDTH, STEPS, FIRST, LAST = 8, 12, 0.1, 1.0  # cells that a particle may move by; steps; the first and last a
CORNERS = [np.reshape(corner, (3, 1, 1, 1)) for corner in itertools.product((0, 1), repeat=3)]


def clouds(psi, first=WIDTH):
    """The eight cells around each particle and their weights, in a block that has `first` more cells in front."""
    xp = np if isinstance(psi, np.ndarray) else jnp
    cell, offset = xp.floor(psi).astype(int) + xp.indices(psi.shape[1:]) + first, psi - xp.floor(psi)
    return [(tuple(cell + c), xp.prod(xp.where(c, offset, 1 - offset), 0)) for c in CORNERS]


def density(psi):
    """Density in the block of a device."""
    mass = jnp.zeros([n + 2 * WIDTH for n in psi.shape[1:]], psi.dtype)
    for cells, weights in clouds(psi):
        mass = mass.at[cells].add(weights)
    return mf.add_halo(mass, WIDTH, spec=SPEC)


def slope(phi, psi):
    """The gradient of a potential at the particles of a device."""
    wide = mf.halo(phi, WIDTH + 1, spec=SPEC)
    slopes = [(jnp.roll(wide, -1, d) - jnp.roll(wide, 1, d))[1:-1, 1:-1, 1:-1] / 2 for d in range(3)]
    return sum(jnp.stack([one[cells] for one in slopes]) * weights for cells, weights in clouds(psi))


def step(state, growth, density, force):
    (psi, u), (before, middle, after) = state, growth
    psi, kept = psi + (middle - before) * u, (before / after) ** 1.5
    u = kept * u - (1 - kept) * force((density(psi) - 1) / middle, psi)
    return (psi + (after - middle) * u, u), None


@functools.partial(jax.jit, static_argnames="mesh")
def evolve(linear, growth, mesh):
    """Displacements and density after all steps; `linear` displacements grow in proportion to a."""
    sums = jax.shard_map(density, mesh=mesh, in_specs=PARTICLES, out_specs=SPEC)
    slopes = jax.shard_map(slope, mesh=mesh, in_specs=(SPEC, PARTICLES), out_specs=PARTICLES)
    one = functools.partial(step, density=sums, force=lambda delta, psi: slopes(mf.poisson(delta), psi))
    (psi, _), _ = jax.lax.scan(one, (linear * FIRST, linear), growth)
    return psi, sums(psi)


def by_numpy(linear, growth):  # the same on one periodic grid
    n = len(linear[0])
    square = sum(np.meshgrid(*[(2 * np.pi * np.fft.fftfreq(n)) ** 2] * 3, indexing="ij"))

    def density(psi):
        at, weights = zip(*clouds(psi, 0), strict=True)
        return np.histogramdd(np.stack(at, 1).reshape(3, -1).T % n, [range(n + 1)] * 3, weights=np.ravel(weights))[0]

    def force(delta, psi):
        phi = -np.fft.ifftn(np.fft.fftn(delta) / np.maximum(square, 1e-9)).real  # the mean of delta is 0
        slopes = np.stack([(np.roll(phi, -1, d) - np.roll(phi, 1, d)) / 2 for d in range(3)])
        return sum(slopes[:, i % n, j % n, k % n] * weights for (i, j, k), weights in clouds(psi, 0))

    psi, _ = functools.reduce(lambda at, one: step(at, one, density, force)[0], growth, (linear * FIRST, linear))
    return psi, density(psi)


def random_field(n):
    """Displacements from random waves of many lengths; their root mean square is 2 cells."""
    k = np.stack(np.meshgrid(*[2 * np.pi * np.fft.fftfreq(n)] * 3, indexing="ij"))
    colour = np.exp(-1.7 * (k**2).sum(0)) / np.maximum((k**2).sum(0), 1e-9)
    waves = colour * np.fft.fftn(np.random.default_rng(1).standard_normal((n, n, n)))
    psi = np.fft.ifftn(1j * k * (abs(k) < 3.1) * waves, axes=(1, 2, 3)).real
    return 2 * psi / np.sqrt((psi**2).sum(0).mean())


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=32, help="particles along each axis")
    parser.add_argument("--mesh", default="2,4", help="devices along x and y")
    parser.add_argument("--picture", help="a file for a picture of the density before and after")
    asked = parser.parse_args(arguments)
    mesh = jax.make_mesh([int(p) for p in asked.mesh.split(",")], SPEC, axis_types=(AxisType.Auto,) * 2)
    edges, linear = np.linspace(FIRST, LAST, 2 * STEPS + 1), random_field(asked.size)
    growth = np.stack([edges[:-1:2], edges[1::2], edges[2::2]], 1)
    psi, mass = evolve(mf.shard(linear.astype("f4"), mesh, PARTICLES), growth.astype("f4"), mesh)
    wanted, moved = by_numpy(linear, growth)[0], float(abs(psi).max())
    error = np.linalg.norm(psi - wanted) / np.linalg.norm(wanted) if moved < WIDTH else np.inf
    print(f"beside NumPy {error:.1e}; particles moved by up to {moved:.1f} cells")
    if asked.picture:
        figure = Figure((8, 4), layout="constrained")
        for axis, slab in zip(figure.subplots(1, 2), (by_numpy(linear, growth[:0])[1], mass), strict=True):
            axis.imshow(np.log(0.2 + slab[:, :, : len(slab) // 6].mean(2)).T, cmap="inferno", vmin=-1.5, vmax=1.2)
        figure.savefig(asked.picture, dpi=80)
    return error


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # without an accelerator
    main()
