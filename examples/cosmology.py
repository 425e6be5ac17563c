"""Cosmology: a random density with a given power spectrum, the displacements it causes, and their inversion.

The density contrast of the early universe is white noise w, coloured by a power spectrum P: delta = F^-1 sqrt(P) F w.
Gravity moves matter. To first order (Zel'dovich) a particle at q moves to q + psi(q), down the potential phi:

    laplacian phi = delta,   psi = -grad phi

Displacements d are observed with errors sigma in part of the box. The most probable initial noise minimizes a loss,
whose gradient passes through derivatives, Poisson's equation and the colouring:

    loss(w) = sum_seen |psi(w) - d|^2 / (2 sigma^2) + sum w^2 / 2

Everything runs inside `jit`, on arrays cut by every mesh axis. JAX's conjugate gradients minimize the loss; they need
Auto mesh axes. They start from zeros made inside `jit`, so `spec=` gives the sharding. Density, displacements and
gradient are compared with NumPy's in double precision, the estimated power spectrum with P.

    python examples/cosmology.py --picture cosmology.png        # 32^3
    python examples/cosmology.py --size 512 --mesh 2,2,2
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from matplotlib.figure import Figure

import meshfft as mf

BOX, SIGMA = 500.0, 2.0  # side of the box and errors of displacements, in Mpc / h
LENGTHS, SPEC = (BOX,) * 3, PartitionSpec("x", "y", "z")


def power(k):
    """A spectrum like that of cold dark matter: k at large scales, a peak at 0.014 h / Mpc, k^-2 beyond."""
    return 8e6 * k / (1 + (k / 0.02) ** 2) ** 1.5


def density(noise):
    """White noise, multiplied by sqrt(P) in Fourier space."""
    white = noise * (noise.size / BOX**3) ** 0.5
    return mf.multiply_spectrum(white, lambda *k: power(sum(q**2 for q in k) ** 0.5) ** 0.5, lengths=LENGTHS, spec=SPEC)


def displacement(delta):
    """psi along x, y and z."""
    potential = mf.poisson(delta, LENGTHS, spec=SPEC)
    return jnp.stack([-mf.derivative(potential, axis, lengths=BOX, spec=SPEC) for axis in range(3)])


def loss(noise, data, seen):
    """Half of chi^2, from the observations and the noise."""
    misfit = seen * (displacement(density(noise)) - data) / SIGMA
    return (misfit**2).sum() / 2 + (noise**2).sum() / 2


def most_probable(data, seen):
    """The noise that minimizes the loss, whose gradient is linear in it and zero at the minimum."""
    slope = jax.grad(loss)(jnp.zeros_like(data[0]), data, seen)
    return jax.scipy.sparse.linalg.cg(lambda w: jax.grad(loss)(w, data, seen) - slope, -slope, maxiter=40)[0]


def by_numpy(noise, data, seen):
    """Density, displacements and gradient of the loss, by numpy.fft."""
    n = len(noise)
    k = np.stack(np.meshgrid(*[2 * np.pi * np.fft.fftfreq(n, BOX / n)] * 3, indexing="ij"))
    square = (k**2).sum(0)
    colour = np.sqrt(power(np.sqrt(square)) * noise.size / BOX**3)
    factor = 1j * k * (abs(k) < np.pi * n / BOX * 0.999) * colour / np.maximum(square, 1e-12)  # 0 at Nyquist
    delta, psi = (np.fft.ifftn(f * np.fft.fftn(noise), axes=(-3, -2, -1)).real for f in (colour, factor))
    misfit = np.fft.fftn(seen * (psi - data) / SIGMA**2, axes=(1, 2, 3))
    return delta, psi, noise + np.fft.ifftn((factor.conj() * misfit).sum(0)).real


def draw(path, delta, psi, again, k, estimate, errors):
    """Slices of the density, the displaced particles and the recovered density, and the power spectrum."""
    figure = Figure((12, 3.2), layout="constrained")
    axes, n = figure.subplots(1, 4), len(delta)
    for axis, field, title in (axes[0], delta, "density"), (axes[2], again, "density found from the left 60 %"):
        axis.imshow(field[:, :, 0].T, cmap="inferno", origin="lower", vmin=-1.5, vmax=2.5)
        axis.set(title=title, xticks=[], yticks=[])
    moved = (np.stack(np.indices((n, n))) + psi[:2, :, :, 0] * n / BOX) % n
    axes[1].plot(*moved.reshape(2, -1), "k.", markersize=60 / n)
    axes[1].set(title="particles", xticks=[], yticks=[], aspect="equal", xlim=(0, n), ylim=(0, n))
    axes[3].semilogy(k, power(k))
    axes[3].errorbar(k, estimate, errors, fmt="k.")
    axes[3].set(title="P(k) and its estimate", xlabel="k [h / Mpc]")
    figure.savefig(path, dpi=80)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=32, help="points along each axis, a multiple of the devices there")
    parser.add_argument("--mesh", default="2,2,2", help="devices along x, y and z")
    parser.add_argument("--picture", help="a file to draw to")
    asked = parser.parse_args(arguments)
    mesh = jax.make_mesh([int(p) for p in asked.mesh.split(",")], SPEC, axis_types=(AxisType.Auto,) * 3)
    n = asked.size
    drawn = jax.jit(lambda key: jax.random.normal(key, (n, n, n)), out_shardings=NamedSharding(mesh, SPEC))
    noise, *errors = map(drawn, jax.random.split(jax.random.key(0), 4))
    delta = jax.jit(density)(noise)
    psi = jax.jit(displacement)(delta)
    data, seen = psi + SIGMA * jnp.stack(errors), np.float32(np.arange(n) < 0.6 * n)[:, None, None]
    ours = delta, psi, jax.jit(jax.grad(loss))(noise, data, seen)
    theirs = by_numpy(*(np.asarray(one, float) for one in (noise, data, seen)))
    error = max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(ours, theirs, strict=True))
    k, mean, counts = (np.asarray(one)[1 : n // 2] for one in mf.power_spectrum(delta, LENGTHS))
    estimate, deviation = mean * BOX**3, power(k) * np.sqrt(2 / counts)
    off = np.sqrt(np.mean(((estimate - power(k)) / deviation) ** 2))
    print(f"beside NumPy {error:.1e}; the estimated P(k) is {off:.1f} standard errors away")
    if asked.picture:
        again = jax.jit(lambda *seen: density(most_probable(*seen)))(data, seen)
        draw(asked.picture, *map(mf.gather, (delta, psi, again)), k, estimate, deviation)
    return error, off


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # without an accelerator
    main()
