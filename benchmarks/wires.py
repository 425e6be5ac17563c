"""Wires measured: time between two processes over loopback, and errors of each tier and wire.

loopback: 256^3 over two processes of one CPU device, which talk over gloo, forward and back by every wire, interleaved.
`--rate 2gbit` slows it down, in its own network (`unshare` and `tc`, on Linux).
accuracy: lines cut over eight CPU devices, by dense products of every tier and by redistributions over every wire.
"""

import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from jax.sharding import PartitionSpec as P

import meshfft as mf
from meshfft.collectives.wires import WIRES
from meshfft.numerics.dtypes import TIERS

from .common import cpu_devices, mesh_of, noise, numbers, print_rows, relative
from .rows import Values, kept
from .timing import timed

PROCESSES = 2
SLOW = "ip link set lo up && tc qdisc add dev lo root tbf rate {} burst 4mb latency 20ms"
DECADES, FIELDS = 12, ("noise", "smooth", "spike", "picture")
OUTER = ((0, 0, 0.7, 0.9, 1.0), (0, 0, 0.65, 0.85, -0.8))
ELLIPSES = (*OUTER, (0.2, 0.1, 0.1, 0.3, 0.3), (-0.2, -0.3, 0.2, 0.1, 0.1))
HIDDEN = typer.Option(hidden=True)


def main(
    what: Annotated[str, typer.Argument(metavar="loopback|accuracy")],
    rounds: int = 15,
    size: int = 256,
    rate: str = "",
    sizes: str = "64,1024,8192,65536",
    rows: Path | None = None,
    limited: Annotated[bool, HIDDEN] = False,
    process: Annotated[int | None, HIDDEN] = None,
    address: Annotated[str, HIDDEN] = "",
) -> None:
    if process is not None:
        one_process(process, address, rounds, size)
    elif what == "loopback" and rate and not limited:
        own = (sys.executable, "-m", "benchmarks", *sys.argv[1:], "--limited")
        os.execvp("unshare", ("unshare", "-rn", "sh", "-c", f'{SLOW.format(rate)} && exec "$0" "$@"', *own))
    elif what == "loopback":
        print_rows(kept(rows, ({**row, "rate": rate} for row in loopback(rounds, size))))
    elif what == "accuracy":
        print_rows(kept(rows, accuracy(numbers(sizes))))
    else:
        raise SystemExit(f"{what!r} is not measured here: give loopback or accuracy")


def loopback(rounds: int, size: int) -> list[Values]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    own = [sys.executable, "-m", "benchmarks", "wires", "loopback", "--rounds", str(rounds), "--size", str(size)]
    own += ["--address", address, "--process"]
    started = [subprocess.Popen([*own, str(i)], stdout=subprocess.PIPE) for i in range(PROCESSES)]
    told = [process.communicate()[0] for process in started]
    assert not any(process.returncode for process in started), "a process failed"
    first, second = ([json.loads(line) for line in text.splitlines() if line.startswith(b"{")] for text in told)
    slower = [list(map(max, a["seconds"], b["seconds"])) for a, b in zip(first, second, strict=True)]
    return [{**row, "seconds": seconds} for row, seconds in zip(first, slower, strict=True)]


def one_process(process: int, address: str, rounds: int, size: int) -> None:
    """Prints the times of one process: forward and back by every wire, interleaved, in the same order in both."""
    cpu_devices(1)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, PROCESSES, process)
    mesh, spec = mesh_of((PROCESSES,)), P("x")
    x = mf.shard(noise((size,) * 3), mesh, spec)
    assert isinstance(x, jax.Array)
    plans = {wire: mf.plan(x.shape, mesh=mesh, spec=spec, wire=wire) for wire in WIRES}
    calls = {wire: lambda plan=plan: plan.inverse(jax.block_until_ready(plan(x))) for wire, plan in plans.items()}
    random.seed(0)  # the same order in both processes
    found = timed(calls, rounds)
    for wire, plan in plans.items():
        (mine,), (came,) = x.addressable_shards, calls[wire]().addressable_shards
        row: Values = {"wire": wire, "shape": x.shape, "seconds": found[wire].seconds}
        row |= {"bytes_each_way": plan.work.sent_bytes, "error_expected": plan.error}
        row["error_back"] = relative(came.data, np.asarray(mine.data))
        print(json.dumps(row), flush=True)


def accuracy(sizes: tuple[int, ...]) -> Iterator[Values]:
    cpu_devices(wide=True)
    mesh, spec = mesh_of((8,)), P(None, "x")
    ways = [("kdft", tier, "exact") for tier in TIERS]
    ways += [("transpose", tier, "exact") for tier in TIERS if TIERS[tier].slices]
    ways += [("transpose", tier, wire) for tier in ("float32", "float64") for wire in WIRES]
    ways.remove(("transpose", "float64", "bfloat16"))  # which lacks the range
    for n, (method, tier, wire) in ((n, way) for n in sizes for way in ways):
        if method == "kdft" and TIERS[tier].slices and n > 8192:  # CPUs would take an hour for 65536
            continue
        given = fields(n).astype(np.complex128 if tier == "float64" or TIERS[tier].slices else np.complex64)
        truth = np.fft.fft(given.astype(np.clongdouble))
        how: Values = {"method": method, "precision": tier, "wire": wire, "axes": (1,)}
        plan = mf.plan(given.shape, mesh=mesh, spec=spec, dtype=given.dtype, **how)
        errors = map(relative, mf.gather(plan(mf.shard(given, mesh, spec))), truth)
        row = {"n": n, "method": method, "precision": tier, "wire": wire, "error_expected": plan.error}
        yield {**row, **dict(zip(FIELDS, errors, strict=True))}


def fields(n: int) -> np.ndarray:
    rng, k = np.random.default_rng(n), np.abs(np.fft.fftfreq(n, 1 / n))
    white, other = (rng.standard_normal(n) + 1j * rng.standard_normal(n) for _ in range(2))
    spike, side = np.zeros(n, complex), 2 ** (n.bit_length() // 2)
    spike[n // 3] = 1
    down, across = np.meshgrid(np.linspace(-1, 1, n // side), np.linspace(-1, 1, side), indexing="ij")
    picture = sum(by * (((down - y) / a) ** 2 + ((across - x) / b) ** 2 <= 1) for y, x, a, b, by in ELLIPSES)
    smooth = np.fft.ifft(other * 10 ** (-DECADES * k / k.max()))
    return np.stack([white, smooth, spike, np.ravel(picture).astype(complex)])
