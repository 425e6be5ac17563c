"""Turbulence: the Taylor-Green vortex decays, by a pseudo-spectral solver on a pencil mesh.

An incompressible fluid in a periodic box of length 2 pi, started from one large vortex,

    u = (sin x cos y cos z, -cos x sin y cos z, 0)

breaks down into ever smaller vortices, until viscosity damps them. In Fourier space pressure removes the part along k:

    d u_k / dt = -P_k F((u . grad) u)_k - nu |k|^2 u_k,   P_k = 1 - k k^T / |k|^2

(The program uses the cross product of u and curl u instead of -(u . grad) u. It differs by a gradient, which P_k
removes.) Modes above two thirds of the grid's largest are dropped to avoid aliasing. The classical Runge-Kutta method
integrates in time, in one `jit` with `lax.scan`.

The box is cut into pencils, `P(None, "x", "y")` for the components of u. A plan with `order="any"` leaves spectra in
the cheapest layout, and `wavenumbers(plan)` have the same. The result is compared with `jnp.fft` on one device.

    python examples/turbulence.py --picture turbulence.png            # 32^3, Reynolds number 100
    python examples/turbulence.py --size 128 --viscosity 0.000625     # 1600: the classical case
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from matplotlib.figure import Figure

import meshfft as mf


def cross(a, b):
    """The cross product of vectors along dimension 0."""
    return jnp.stack([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


def rate(spectrum, k, viscosity, forward, backward):
    """d u_k / dt, the energy mean |u|^2 / 2, and the rate nu mean |curl u|^2 at which it decays."""
    square = k[0] ** 2 + k[1] ** 2 + k[2] ** 2
    u, vorticity = backward(spectrum), backward(1j * cross(k, spectrum))
    product = forward(cross(u, vorticity))
    pressure = (k[0] * product[0] + k[1] * product[1] + k[2] * product[2]) / jnp.maximum(square, 1)
    kept = (abs(k[0]) < u.shape[1] / 3) & (abs(k[1]) < u.shape[2] / 3) & (abs(k[2]) < u.shape[3] / 3)
    force = kept * (product - jnp.stack([k[0] * pressure, k[1] * pressure, k[2] * pressure]))
    return force - viscosity * square * spectrum, 3 / 2 * (u**2).mean(), 3 * viscosity * (vorticity**2).mean()


@functools.partial(jax.jit, static_argnames=("steps", "forward", "backward"))
def simulate(u, k, viscosity, dt, steps, forward, backward):
    """Runge-Kutta steps. Returns the final velocity, and the energy and its decay before each step."""
    f = functools.partial(rate, k=k, viscosity=viscosity, forward=forward, backward=backward)

    def step(v, _):
        a, energy, decay = f(v)
        b, *_ = f(v + dt / 2 * a)
        c, *_ = f(v + dt / 2 * b)
        d, *_ = f(v + dt * c)
        return v + dt / 6 * (a + 2 * b + 2 * c + d), (energy, decay)

    end, history = jax.lax.scan(step, forward(u), length=steps)
    return backward(end), *history


def on_mesh(u, mesh, **options):
    """`simulate` by meshfft, on a mesh."""
    plan = mf.plan(u.shape, mesh=mesh, spec=P(None, "x", "y"), axes=(1, 2, 3), kind="rfft", order="any")
    k = [one[0] for one in mf.wavenumbers(plan, (2 * np.pi,) * 3)]  # without the dimension of components
    return simulate(mf.shard(u, mesh, plan.in_layout.spec), k, **options, forward=plan, backward=plan.inverse)


def on_one_device(u, **options):
    """`simulate` by jnp.fft, on one device."""
    waves = [np.fft.fftfreq(n, 1 / n) for n in u.shape[1:3]] + [np.arange(u.shape[3] // 2 + 1)]
    k = [jnp.float32(one) for one in np.meshgrid(*waves, indexing="ij", sparse=True)]
    forward, backward = (functools.partial(f, s=u.shape[1:], axes=(1, 2, 3)) for f in (jnp.fft.rfftn, jnp.fft.irfftn))
    return simulate(u, k, **options, forward=forward, backward=backward)


def draw(path, u, times, ours, theirs):
    """A slice of the vorticity, and energy and its decay over time."""
    axes = (figure := Figure((9, 3), layout="constrained")).subplots(1, 3)
    curl = (np.gradient(u[1], axis=0) - np.gradient(u[0], axis=1))[:, :, u.shape[3] // 8]
    axes[0].set(title=f"vorticity along z, t = {times[-1]:.1f}", xticks=[], yticks=[])
    axes[0].imshow(curl.T, cmap="RdBu_r", origin="lower", interpolation="bicubic")
    for name, style, history in (("meshfft, on a mesh", "-", ours), ("jnp.fft, one device", "k:", theirs)):
        for axis, title, values in zip(axes[1:], ("energy", "its decay"), history, strict=True):
            axis.plot(times, values, style, label=name)
            axis.set(title=title, xlabel="t", ylim=(0, None))
    axes[1].legend(frameon=False)
    figure.savefig(path, dpi=90)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=32, help="points along each axis, a multiple of the devices")
    parser.add_argument("--mesh", default="2,4", help="devices along x and y")
    parser.add_argument("--viscosity", type=float, default=0.01)
    parser.add_argument("--time", type=float, default=10)
    parser.add_argument("--picture", help="a file to draw to")
    asked = parser.parse_args(arguments)
    mesh = jax.make_mesh([int(p) for p in asked.mesh.split(",")], ("x", "y"))
    if asked.size % mesh.size:
        parser.error(f"--size {asked.size} is no multiple of the {mesh.size} devices of --mesh {asked.mesh}")
    x, y, z = np.meshgrid(*[2 * np.pi * np.arange(asked.size) / asked.size] * 3, indexing="ij", sparse=True)
    u = [np.sin(x) * np.cos(y) * np.cos(z), -np.cos(x) * np.sin(y) * np.cos(z), 0 * (x + y + z)]
    options = {"viscosity": asked.viscosity, "dt": 3.2 / asked.size, "steps": int(asked.time * asked.size / 3.2)}
    end, *ours = on_mesh(np.float32(u), mesh, **options)
    _, *theirs = on_one_device(np.float32(u), **options)
    error = max(float(abs(a - b).max() / abs(b).max()) for a, b in zip(map(np.asarray, ours), theirs, strict=True))
    print(f"energy {ours[0][0]:.4f} to {ours[0][-1]:.4f}; beside jnp.fft on one device {error:.1e}")
    if asked.picture:
        draw(asked.picture, mf.gather(end), options["dt"] * np.arange(len(ours[0])), ours, theirs)
    return error


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # without an accelerator
    main()
