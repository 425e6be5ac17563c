"""Sequence models: a gated long convolution, trained on sequences that are cut over the devices.

A record has a signal x and two marks, "write" and "read". The network has to recall x after D samples:

    y[n] = read[n] write[n - D] x[n - D]        with a delay D of three quarters of the record

One block as in Hyena (Poli et al., arXiv:2302.10866) learns it. Gates q and k see the marks, and between them is a
causal filter h with the length of the record:

    y[n] = sum over channels c of q_c[n] sum_{m <= n} h_c[m] k_c[n - m] x[n - m]

Records are `P(None, None, "seq")`, filters `P(None, "seq")`: no device has a whole record or a whole filter.
`mf.convolve` takes three all-to-alls, two from sequence to channels and one back, and its gradient three more.

    python examples/long_convolution.py --picture long_convolution.png      # with `pip install -e ".[examples]"`
    python examples/long_convolution.py --length 65536 --channels 16 --wire int16
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P
from matplotlib.figure import Figure

import meshfft as mf

BATCH = 8


def causal(u, h):
    """The causal convolution by NumPy in float64, for comparison."""
    n = u.shape[-1]
    return np.fft.irfft(np.fft.rfft(u.astype(float), 2 * n) * np.fft.rfft(h.astype(float), 2 * n), 2 * n)[..., :n]


def block(weights, records, convolve):
    x, marks = records[:, :1], records[:, 1:]
    q, k = (jnp.einsum("ci,bin->bcn", weights[name], marks) for name in "qk")
    return (q * convolve(k * x, weights["h"])).sum(1)


@functools.partial(jax.jit, static_argnums=2)
def train(weights, batches, wire):
    """One step per batch. Returns the weights, and the losses relative to those of zero answers."""
    rate = functools.partial(optax.cosine_decay_schedule, decay_steps=len(batches[0]))
    each = {"gate": optax.adam(rate(1e-2)), "filter": optax.sgd(rate(0.24 / len(weights["h"])), momentum=0.9)}
    optimizer = optax.multi_transform(each, {"q": "gate", "k": "gate", "h": "filter"})
    convolve = functools.partial(mf.convolve, axes=(-1,), mode="causal", wire=wire)

    def loss(weights, records, answers):
        return ((block(weights, records, convolve) - answers) ** 2).mean() / (answers**2).mean()

    def step(carry, batch):
        weights, state = carry
        value, slope = jax.value_and_grad(loss)(weights, *batch)
        updates, state = optimizer.update(slope, state)
        return (optax.apply_updates(weights, updates), state), value

    (weights, _), losses = jax.lax.scan(step, (weights, optimizer.init(weights)), batches)
    return weights, losses


def drawn(rng, steps, length, delay):
    """Batches of records (x, write, read), and their answers."""
    x = rng.standard_normal((steps, BATCH, length))
    write, read = rng.integers(0, 2, (2, steps, BATCH, length))
    answers = np.zeros_like(x)
    answers[..., delay:] = (read[..., delay:] * (write * x)[..., : length - delay]) if delay else read * write * x
    return np.float32(np.stack([x, write, read], 2)), np.float32(answers)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=1024, help="samples of a record, a multiple of the devices")
    parser.add_argument("--channels", type=int, default=8, help="of the block; best a multiple of the devices")
    parser.add_argument("--steps", type=int, default=150, help=f"of {BATCH} records each")
    parser.add_argument("--devices", type=int, default=8, help="along the sequence")
    parser.add_argument("--wire", default="exact", help="format of messages: exact, int24, int16 or bfloat16")
    parser.add_argument("--picture", help="a file to draw to")
    asked = parser.parse_args(arguments)
    if asked.length % asked.devices:
        parser.error(f"--length {asked.length} is no multiple of the {asked.devices} devices")
    mesh, rng, delay = jax.make_mesh((asked.devices,), ("seq",)), np.random.default_rng(0), asked.length * 3 // 4
    records, answers = drawn(rng, asked.steps, asked.length, delay)
    gates = {name: 0.7 * rng.standard_normal((asked.channels, 2)) for name in "qk"}
    weights = {name: mf.shard(np.float32(gate), mesh, P()) for name, gate in gates.items()}
    weights["h"] = mf.shard(np.zeros((asked.channels, asked.length), "f4"), mesh, P(None, "seq"))
    batches = mf.shard(records, mesh, P(None, None, None, "seq")), mf.shard(answers, mesh, P(None, None, "seq"))
    weights, losses = train(weights, batches, asked.wire)
    assert weights["h"].sharding.spec == P(None, "seq")
    unseen, wanted = (one[0] for one in drawn(rng, 1, asked.length, delay))
    convolve = functools.partial(mf.convolve, axes=(-1,), mode="causal", wire=asked.wire)
    cut = mf.shard(unseen, mesh, P(None, None, "seq"))
    found = np.asarray(jax.jit(functools.partial(block, convolve=convolve))(weights, cut))
    learned = {name: np.asarray(one) for name, one in weights.items()}
    beside = np.asarray(block(learned, unseen, lambda u, h: causal(np.asarray(u), h)))
    error, apart = (np.linalg.norm(found - one) / np.linalg.norm(one) for one in (wanted, beside))
    print(f"error on unseen records {error:.3f}; beside NumPy {apart:.1e}")
    if asked.picture:
        figure = Figure((12, 3), layout="constrained")
        left, middle, right = figure.subplots(1, 3)
        left.semilogy(np.sqrt(losses))
        left.set_title("error by step")
        middle.plot(learned["h"].T, linewidth=0.6)
        middle.set_title(f"filters, a delay of {delay}")
        right.plot(wanted[0, delay : delay + 48], "k.", label="wanted")
        right.plot(found[0, delay : delay + 48], linewidth=0.8, label="found")
        right.set_title("answers")
        right.legend(loc="lower right")
        figure.savefig(asked.picture, dpi=70)
    return error, apart


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # without an accelerator
    main()
