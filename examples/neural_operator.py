"""Machine learning: a Fourier neural operator, trained on a mesh that cuts the batch and every sample.

It learns the operator that maps the potential psi of a flow u = grad psi at time 0 to psi at time T. psi obeys a
Hamilton-Jacobi equation (u obeys Burgers' equation), which forms shocks:

    d psi / dt + |grad psi|^2 / 2 = nu laplacian psi

By the Cole-Hopf substitution, exp(-psi / 2 nu) obeys the heat equation, so NumPy computes exact data. A layer, v ->
gelu(F^-1 R F v + W v), mixes channels: R in the lowest modes, W at all points (Li et al., arXiv:2010.08895).

The mesh is `("batch", "space")`, the data `P("batch", None, "space", None)`. `mf.truncate_spectrum` takes the lowest
modes of a cut spectrum, R is cut like them, and `mf.pad_spectrum` restores the size: no device has a whole spectrum.

    python examples/neural_operator.py --picture neural_operator.png        # with `pip install -e ".[examples]"`
    python examples/neural_operator.py --size 512 --width 64 --steps 5000 --mesh 8,8
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P
from matplotlib.figure import Figure

import meshfft as mf

VISCOSITY, TIME, BATCH, LAYERS, MODES = 0.1, 1.0, 16, 3, 8
OPTIONS = {"axes": (2, 3), "norm": "forward"}


class Operator(eqx.Module):
    """Weights: `lift` to channels; R (real and imaginary) and W of the layers; `drop` to the change of psi."""

    lift: jax.Array
    R: jax.Array
    W: jax.Array
    drop: jax.Array

    def __init__(self, width, mesh, rng):
        def draw(scale, *shape, cut=()):
            return mf.shard(np.float32(scale * rng.standard_normal(shape)), mesh, P(*cut))

        self.lift, self.W = draw(1, width, 1), draw(width**-0.5, LAYERS, width, width)
        self.R = draw(1 / width, LAYERS, 2, width, width, 2 * MODES, MODES + 1, cut=[None] * 4 + ["space"])
        self.drop = draw(0.1 / width, 1, width)

    def __call__(self, psi):
        """psi at time T, from psi, (batch, 1, x, y). Modes +-MODES coincide and get no weight (docs/spectral.md)."""
        below = (np.arange(2 * MODES) != MODES)[:, None] & (np.arange(MODES + 1) != MODES)
        v = jnp.einsum("oi,bixy->boxy", self.lift, psi)
        for R, W in zip(self.R, self.W, strict=True):
            modes = mf.truncate_spectrum(mf.rfftn(v, **OPTIONS), (2 * MODES,) * 2, kind="rfft", **OPTIONS)
            mixed = jnp.einsum("oixy,bixy->boxy", below * (R[0] + 1j * R[1]), modes)
            wide = mf.pad_spectrum(mixed, v.shape[2:], kind="rfft", **OPTIONS)
            v = jax.nn.gelu(mf.irfftn(wide, v.shape[2:], **OPTIONS) + jnp.einsum("oi,bixy->boxy", W, v))
        return psi + jnp.einsum("oi,bixy->boxy", self.drop, v)


def loss(model, psi, wanted):
    """Mean square error, relative to that of an unchanged psi."""
    return ((model(psi) - wanted) ** 2).mean() / ((psi - wanted) ** 2).mean()


@jax.jit
def train(model, batches):
    """One step per batch. Returns the network, the state of the optimizer, and the losses."""
    optimizer = optax.adam(optax.cosine_decay_schedule(5e-3, len(batches[0])))

    def step(carry, batch):
        model, state = carry
        value, slope = jax.value_and_grad(loss)(model, *batch)
        updates, state = optimizer.update(slope, state)
        return (optax.apply_updates(model, updates), state), value

    return jax.lax.scan(step, (model, optimizer.init(model)), batches)


def flows(count, n, rng):
    """Batches of random smooth potentials on n^2 points, at time 0 and at time T, exactly."""
    square = np.fft.fftfreq(n, 1 / n)[:, None] ** 2 + np.fft.fftfreq(n, 1 / n) ** 2
    psi = np.fft.ifft2(np.exp(-square / 8) * np.fft.fft2(rng.standard_normal((count, BATCH, 1, n, n)))).real
    psi *= 0.5 / psi.std((-2, -1), keepdims=True)
    heat = np.fft.ifft2(np.exp(-VISCOSITY * square * TIME) * np.fft.fft2(np.exp(-psi / (2 * VISCOSITY)))).real
    return np.float32(psi), np.float32(-2 * VISCOSITY * np.log(heat))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=32, help="points along each axis, a multiple of the devices there")
    parser.add_argument("--width", type=int, default=16, help="channels")
    parser.add_argument("--steps", type=int, default=300, help=f"of {BATCH} functions each")
    parser.add_argument("--mesh", default="2,4", help="devices along the batch and along x")
    parser.add_argument("--picture", help="a file to draw to")
    asked = parser.parse_args(arguments)
    mesh, rng = jax.make_mesh([int(p) for p in asked.mesh.split(",")], ("batch", "space")), np.random.default_rng(0)
    batches = [mf.shard(a, mesh, P(None, "batch", None, "space")) for a in flows(asked.steps, asked.size, rng)]
    (model, _), losses = train(Operator(asked.width, mesh, rng), batches)
    psi, wanted = (a[0] for a in flows(1, asked.size, rng))
    found = mf.gather(eqx.filter_jit(model)(mf.shard(psi, mesh, P("batch", None, "space"))))
    error = np.linalg.norm(found - wanted) / np.linalg.norm(psi - wanted)
    print(f"error on unseen functions: {error:.3f} of their change")
    if asked.picture:
        figure = Figure((12, 3), layout="constrained")
        *axes, last = figure.subplots(1, 4)
        fields = {"psi": psi[0, 0], "after time T": wanted[0, 0], "by the network": found[0, 0]}
        for axis, (title, field) in zip(axes, fields.items(), strict=True):
            axis.imshow(field.T, cmap="RdBu_r", vmin=-1.5, vmax=1.5, interpolation="bicubic")
            axis.set(title=title, xticks=[], yticks=[])
        last.semilogy(np.sqrt(losses))
        last.set_title("error by step")
        figure.savefig(asked.picture, dpi=70)
    return error


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # without an accelerator
    main()
