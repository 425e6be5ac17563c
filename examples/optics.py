"""Optics: a lens focuses light, by the angular spectrum of a large field and a zoom into the focus.

Light of wavelength w passes a round aperture of radius R and a lens of focal length f. It is propagated to the focus in
two halves, each by the transform that suits it. Halfway the field is still large, and each plane wave gains a phase on
the way there (the angular spectrum method, paraxial):

    u(z) = F^-1 exp(-i pi w z |nu|^2) F u(0),   nu: cycles per length

Over the other half, d, the light converges to a spot 50 times smaller than the aperture. Fresnel's integral is then a
Fourier transform of u times a chirp, needed at a few frequencies in a narrow band:

    u(x) = 1 / (i w d) sum_n u_n exp(i pi |x_n|^2 / (w d)) exp(-2 pi i x.x_n / (w d)) dx^2      (up to a phase)

`Points.zoom` gives just these frequencies, at any spacing; a padded FFT would compute hundreds of times more. `kdftn`
computes the spot by dense products, from a field that stays cut along both dimensions. The spot is compared with the
Airy pattern of a perfect lens, pi R^2 / (w f) times 2 J_1(v) / v with v = 2 pi R |x| / (w f).

    python examples/optics.py --picture optics.png      # 512^2
    python examples/optics.py --size 8192               # a finer field
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from matplotlib.figure import Figure
from scipy.special import j1

import meshfft as mf

WAVE, FOCUS, RADIUS, SIDE = 5e-4, 60.0, 1.0, 2.5  # wavelength, focal length, aperture's radius, field's side: mm
SPOT, SAMPLES = 0.06, 128  # half the side of the zoom, and its samples along each axis


def behind_lens(x, y):
    """A plane wave behind the aperture, whose edge is smoothed over one sample, and the lens."""
    square = x**2 + y**2
    aperture = jnp.clip((RADIUS - jnp.sqrt(square)) * len(x) / SIDE + 0.5, 0, 1)
    return aperture * jnp.exp(-1j * jnp.pi / (WAVE * FOCUS) * square)


def travel(u, distance):
    """Propagates u by the angular spectrum method; k is 2 pi nu."""
    phase = WAVE * distance / (4 * np.pi)
    return mf.multiply_spectrum(u, lambda kx, ky: jnp.exp(-1j * phase * (kx**2 + ky**2)), lengths=(SIDE, SIDE))


def spot(u, x, y, distance):
    """Fresnel's integral without its phase, at SAMPLES points along each axis, from -SPOT up to SPOT."""
    step = SIDE / len(u)
    turns = SPOT * step / (WAVE * distance)  # cycles per sample of u
    chirp = jnp.exp(1j * jnp.pi / (WAVE * distance) * (x**2 + y**2))
    points = mf.Points.zoom(-turns, turns, SAMPLES)
    return mf.kdftn(u * chirp, [points, points]) * step**2 / (WAVE * distance)


def airy(x, y):
    """The amplitude in the focal plane of a perfect lens."""
    v = np.maximum(2 * np.pi * RADIUS / (WAVE * FOCUS) * np.hypot(x, y), 1e-9)
    return np.pi * RADIUS**2 / (WAVE * FOCUS) * 2 * j1(v) / v


def draw(path, start, half, focus, at):
    """The field behind the lens, halfway and at the focus, and a line through the focus with the Airy pattern."""
    figure = Figure((12, 3.2), layout="constrained")
    axes = figure.subplots(1, 4)
    axes[0].imshow(np.where(abs(start) > 0, np.angle(start), np.nan).T, cmap="twilight")
    axes[1].imshow(abs(half).T, cmap="magma")
    axes[2].imshow(np.log10(abs(focus / focus.max()) ** 2).T, cmap="magma", vmin=-6)
    for axis, title in zip(axes, ("phase behind the lens", "halfway", "focus, 20 times larger"), strict=False):
        axis.set(title=title, xticks=[], yticks=[])
    middle = SAMPLES // 2
    axes[3].semilogy(1000 * at, abs(focus[:, middle]) ** 2, label="zoom")
    axes[3].semilogy(1000 * at, airy(at, 0) ** 2, "k:", label="Airy pattern")
    axes[3].set(title="intensity", xlabel="micrometres", ylim=(1e-2, None))
    axes[3].legend(frameon=False)
    figure.savefig(path, dpi=64)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="samples along each axis, a multiple of the devices")
    parser.add_argument("--mesh", default="2,4", help="devices along x and y")
    parser.add_argument("--picture", help="a file to draw to")
    asked = parser.parse_args(arguments)
    mesh, n = jax.make_mesh([int(p) for p in asked.mesh.split(",")], ("x", "y")), asked.size
    line = np.float32(SIDE * (np.arange(n) / n - 0.5))
    x, y = line[:, None], line[None]
    start = jax.jit(behind_lens, out_shardings=NamedSharding(mesh, PartitionSpec("x", "y")))(x, y)
    half = jax.jit(travel)(start, FOCUS / 2)
    focus = np.asarray(jax.jit(spot)(half, x, y, FOCUS / 2))
    at = SPOT * (np.arange(SAMPLES) / (SAMPLES // 2) - 1)
    wanted = abs(airy(at[:, None], at[None]))
    error = np.abs(abs(focus) - wanted).max() / wanted.max()
    print(f"brightest {abs(focus).max():.3f} of {wanted.max():.3f}; beside the Airy pattern {error:.1e}")
    if asked.picture:
        few = max(1, n // 512)
        draw(asked.picture, *(mf.gather(u)[::few, ::few] for u in (start, half)), focus, at)
    return error


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # without an accelerator
    main()
