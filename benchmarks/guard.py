"""Whether the code here is slower than that of another commit, takes more memory, or has more to compile; and peers.

    python -m benchmarks guard COMMIT

Each side is a process with its own `src`; calls are interleaved. Numbers are quotients, here over before: of median
seconds, CPU seconds of a call and of compiling, bytes of temporaries, and compiled instructions. `peer` and `peer_cpu`
are a peer's seconds and CPU seconds over those here: above 1 the code here is faster; `compiled_in` has CPU seconds of
compiling before, here and for the peer. Exit code 1 if temporaries or instructions grew by over 1%, or if three
quarters of a case's calls took over `--slower` times the median before.
`--peers` adds cases that are there for their peers.
"""

import contextlib
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import fft

import meshfft as mf

from .common import cpu_devices, mesh_of, noise, print_rows, spec_of
from .rows import ROOT, Values, kept
from .timing import Call, Seconds, clocked, once, spread, timed

SIZES, LARGER = ("temporaries", "instructions"), 1.01
COLUMNS = ("case", "before", "seconds", "cpu", "compiling", *SIZES, "peer", "peer_cpu", "worse", "compiled_in")
SLAB, PENCIL, BLOCK = MESHES = (8,), (2, 4), (2, 2, 2)
COUNTED = itertools.count()


class Case(NamedTuple):
    call: Callable[[Any, Any], Any]  # takes meshfft or the peer's module, and the array
    shape: tuple[int, ...]
    mesh: tuple[int, ...] = ()  # () for NumPy's array, called eagerly
    dtype: str = "complex64"
    peer: str = ""  # jnp.fft on one device, or scipy.fft with two workers


def of(name: str, **how: Any) -> Callable[[Any, Any], Any]:
    return lambda xp, x: getattr(xp, name)(x, **how)


def half(mesh: tuple[int, ...]) -> Callable[[Any, Any], Any]:
    """With a spec: without one XLA gathers a half spectrum that Auto axes do not divide."""
    return lambda xp, x: xp.rfftn(x, **({"spec": spec_of(mesh)} if xp is mf else {}))


def at_points(_: Any, image: Any) -> Any:
    return mf.nufftn(image, mf.Scattered.turns(np.random.default_rng(0).random((100_000, 2))), tol=1e-3)


def hundred(put: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda xp, x: [xp.fftn(y) for y in [put(x)] * 100][-1]


def new_shape(xp: Any, _: Any) -> Any:
    at = next(COUNTED)
    return xp.fftn(noise((7 + at, 12, 10 + at * 7 % 11)))


def flow(xp: Any, x: Any) -> Any:
    """Ten steps like those of a turbulence code, each of 14 transforms."""

    def step(spectra: list[Any], _: None) -> tuple[list[Any], None]:
        u, v, w = spectra
        fields, turning = [*map(xp.ifftn, spectra)], [xp.ifftn(1j * one) for one in (u - v, v - w, w - u)]
        apart = xp.ifftn(u * v), xp.ifftn(v + 2 * w)
        more = xp.fftn(apart[0] * fields[0]) + xp.fftn(apart[1] * fields[1]) + xp.fftn(apart[0] * apart[1])
        products = (fields[d - 1] * turning[d - 2] - fields[d - 2] * turning[d - 1] for d in range(3))
        return [one + 1e-3 * (xp.fftn(product) + more) for one, product in zip(spectra, products, strict=True)], None

    return jax.lax.scan(step, [x, 2 * x, 3 * x], None, length=10)[0]


def cubes(name: str, sizes: tuple[int, ...], dtype: str, peer: str) -> dict[str, Case]:
    def case(n: int, mesh: tuple[int, ...]) -> Case:
        return Case(half(mesh) if name == "rfftn" else of(name), (n,) * 3, mesh, dtype, peer)

    return {f"{name} {n}^3 over {mesh}": case(n, mesh) for n, mesh in itertools.product(sizes, MESHES)}


CASES = {
    **cubes("fftn", (256,), "complex64", ""),
    "fftn 100 x 90 x 70 over (2, 4)": Case(of("fftn"), (100, 90, 70), PENCIL),
    "rfftn 128^3 over (2, 4)": Case(half(PENCIL), (128,) * 3, PENCIL, "float32", "jnp"),
    "dctn 128^3 over (2, 2, 2)": Case(of("dctn"), (128,) * 3, BLOCK, "float32", "scipy"),
    "dense 512^2 over (2, 4)": Case(of("fftn", method="kdft"), (512, 512), PENCIL),
    "dense 8192 of 8192 x 16 over (8,)": Case(of("fftn", method="kdft", axes=(0,)), (8192, 16), SLAB),
    "fftn 1048576 over (8,)": Case(of("fftn"), (2**20,), SLAB, peer="jnp"),
    "nufftn 512^2 over (8,)": Case(at_points, (512, 512), SLAB),
    "fftn 64^3 over (1,)": Case(of("fftn"), (64,) * 3, (1,), peer="jnp"),
    "100 fftn 16^3 of NumPy": Case(hundred(np.asarray), (16,) * 3, peer="scipy"),
    "100 fftn 16^3 on one device": Case(hundred(jnp.asarray), (16,) * 3, peer="jnp"),
    "100 fftn 16^3 over (8,), eager": Case(hundred(lambda x: mf.shard(x, mesh_of(SLAB), spec_of(SLAB))), (16,) * 3),
}
PEERS = {
    **{f"fftn {n}^3 over (1,)": Case(of("fftn"), (n,) * 3, (1,), peer="jnp") for n in (128, 256)},
    **{f"fftn {n} over (8,)": Case(of("fftn"), (n,), SLAB, peer="jnp") for n in (2**22, 2**24)},
    **cubes("dctn", (64, 128, 256), "float32", "scipy"),
    **cubes("dstn", (64, 128, 256), "float32", "scipy"),
    **cubes("rfftn", (64, 128, 256), "float32", "jnp"),
    **{f"14 transforms of 64^3 in a scan over {mesh}": Case(flow, (64,) * 3, mesh, peer="jnp") for mesh in MESHES},
    "fftn of new shapes of NumPy": Case(new_shape, (1,), peer="jnp"),
}


def main(
    before: str,
    cases: str = "",
    rounds: int = 15,
    slower: float = 1.05,
    peers: bool = False,
    rows: Path | None = None,
) -> None:
    every = CASES | PEERS if peers else CASES
    if not (names := [name for name in every if cases in name]):
        raise SystemExit(f"no case has {cases!r} in its name: there are {', '.join(every)}")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for command in (f"git clone -q --shared {ROOT} {folder}", f"git -C {folder} checkout -q {before}"):
            if subprocess.run(command.split()).returncode:
                raise SystemExit(f"{before!r} is no commit of this clone: give one, such as HEAD~1")
        sides = [stack.enter_context(started(*place)) for place in ((folder,), (ROOT,), (ROOT, "peer"))]
        found = [compared(name, slower, *measured(name, sides[: 2 + bool(every[name].peer)], rounds)) for name in names]
        print_rows(kept(rows, found), COLUMNS)
    if worse := [f"{row['case']} in {row['worse']}" for row in found if row["worse"]]:
        raise SystemExit(f"worse than {before}: {'; '.join(worse)}")


def measured(name: str, sides: "Sequence[subprocess.Popen[str]]", rounds: int) -> list[tuple[Values, list[float]]]:
    """Facts of each side, and the seconds of its calls."""
    facts, cpu = [ask(side, name) for side in sides], [list[float]() for _ in sides]

    def call(at: int) -> Seconds:
        seconds, used = ask(sides[at], name, list)
        cpu[at].append(used)
        return Seconds(seconds)

    times = timed({at: functools.partial(call, at) for at in range(len(sides))}, rounds)
    return [({**one, "cpu": statistics.median(cpu[at][1:])}, times[at].seconds) for at, one in enumerate(facts)]


def compared(name: str, slower: float, *sides: tuple[Values, list[float]]) -> Values:
    before, after, *peers = sides
    old, new = spread(before[1]), spread(after[1])
    over = {what: after[0][what] / size for what, size in before[0].items() if size}
    worse = ["seconds"] * (new[0] > slower * old[1]) + [what for what in SIZES if over.get(what, 1) > LARGER]
    row = {"case": name, "before": old[1], "seconds": new[1] / old[1], **over, "worse": ", ".join(worse)}
    for peer in peers:
        row |= {"peer": spread(peer[1])[1] / new[1], "peer_cpu": peer[0]["cpu"] / after[0]["cpu"]}
        row |= {"compiled_in": " ".join(f"{one[0]['compiling']:.2f}" for one in sides)}
    return row


def started(place: Path, *side: str) -> "subprocess.Popen[str]":
    """A process with the code of one side: it compiles a case when it is asked for first, and times it from then on."""
    environment, pipe = os.environ | {"PYTHONPATH": f"{place / 'src'}:{ROOT}", "MESHFFT_CACHE": "off"}, subprocess.PIPE
    command = [sys.executable, "-m", "benchmarks.guard", *side]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)


def ask(side: "subprocess.Popen[str]", name: str, read: Callable[[Any], Any] = dict) -> Any:
    assert side.stdin is not None and side.stdout is not None
    print(name, file=side.stdin, flush=True)
    if not (line := side.stdout.readline()):
        raise SystemExit(f"{name}: its process ended, for the reason above")
    return read(json.loads(line))


def serve() -> None:
    cpu_devices()
    calls = dict[str, Call]()
    for name in map(str.strip, sys.stdin):
        if name in calls:
            one = once(calls[name])
            answer: Any = one.seconds + one.cpu
        else:
            calls[name], answer = compiled((CASES | PEERS)[name], len(sys.argv) > 1)
        print(json.dumps(answer), flush=True)


def compiled(case: Case, peer: bool) -> tuple[Call, Values]:
    x, by = noise(case.shape, case.dtype), case.peer if peer else "here"
    xp: Any = {"here": mf, "jnp": jnp.fft, "scipy": fft}[by]
    if not case.mesh or by == "scipy":
        call = functools.partial(case.call, xp, x)
        return call, {"compiling": clocked(call)[2]}
    given = jax.device_put(x) if peer else mf.shard(x, mesh_of(case.mesh), spec_of(case.mesh))
    program, _, taken = clocked(lambda: jax.jit(functools.partial(case.call, xp)).lower(given).compile())
    sizes = getattr(program.memory_analysis(), "temp_size_in_bytes", 0), (program.as_text() or "").count("\n")
    return functools.partial(program, given), {"compiling": taken, **dict(zip(SIZES, sizes, strict=True))}


if __name__ == "__main__":
    with fft.set_workers(2):
        serve()
