"""Wires measured: two processes over loopback, where bytes cost, and how wrong results of each tier and wire are.

    python -m benchmarks wires loopback [--rows FILE] [--link "2 Gbit/s"]    (half a minute on two cores)
    python -m benchmarks wires accuracy [--rows FILE]    (a quarter of an hour: dense sums of 65536 terms)

loopback: 256^3 complex64 (--size) over two processes of one CPU device each, which talk over gloo. Plans of every wire
run in turns; a row is a wire: the seconds of each round there and back, the slower process's, those of CPU of the
first, and the bytes that it sends. Loopback is as fast as memory; `tc qdisc add dev lo root tbf rate 2gbit burst 4mb
latency 20ms` makes it as slow as a network, which `--link` writes into the rows.

accuracy: lines of N numbers cut over eight CPU devices, by dense products of every tier and by redistributions over
every wire: white noise, a smooth field whose spectrum falls by twelve decades, one spike and a picture, the rows of a
phantom in one line. Errors are relative, in L2, against the FFT in extended precision (np.longdouble).
"""

import argparse
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from meshfft.collectives.wire import WIRES
from meshfft.numerics.dtypes import TIERS

PACKAGES = ("meshfft", "jax", "jaxlib", "numpy")
PROCESSES = 2
MOST_SLICED = 8192  # terms of dense products by slices: CPUs would take an hour for 65536
SIZES, DECADES, FIELDS = (64, 1024, 8192, 65536), 12, ("noise", "smooth", "spike", "picture")
ELLIPSES = (
    (0.0, 0.0, 0.7, 0.9, 1.0),
    (0.0, 0.0, 0.65, 0.85, -0.8),
    (0.2, 0.1, 0.1, 0.3, 0.3),
    (-0.2, -0.3, 0.2, 0.1, 0.1),
)


def loopback(rounds: int, size: int) -> list[dict[str, Any]]:
    """A row for each wire, of both processes' answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    own = [sys.executable, "-m", "benchmarks.wires", "loopback", "--rounds", str(rounds), "--address", address]
    own += ["--size", str(size)]
    started = [subprocess.Popen([*own, "--process", str(i)], stdout=subprocess.PIPE) for i in range(PROCESSES)]
    told = [process.communicate()[0] for process in started]
    assert not any(process.returncode for process in started), "a process failed"
    first, second = ([json.loads(line) for line in text.splitlines() if line.startswith(b"{")] for text in told)
    each = zip(first, second, strict=True)
    return [{**a, "seconds": [max(pair) for pair in zip(a["seconds"], b["seconds"], strict=True)]} for a, b in each]


def one_process(process: int, address: str, rounds: int, size: int) -> Iterator[dict[str, Any]]:
    """What one of the processes finds: there and back by every wire, in turns."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, PROCESSES, process)
    from jax.sharding import PartitionSpec as P

    import meshfft as mf
    from benchmarks.made import circumstances

    mesh = jax.make_mesh((PROCESSES,), ("x",))
    random, facts = np.random.default_rng(0), circumstances(PACKAGES)
    values = (random.standard_normal((size,) * 3) + 1j * random.standard_normal((size,) * 3)).astype(np.complex64)
    x = mf.shard(values, mesh, P("x"))
    plans = {wire: mf.plan((size,) * 3, mesh=mesh, spec=P("x"), wire=wire) for wire in WIRES}
    seconds, cpu = ({wire: list[float]() for wire in WIRES} for _ in range(2))
    back = {wire: plan.inverse(plan(x)) for wire, plan in plans.items()}
    for _ in range(rounds):
        for wire, plan in plans.items():
            begun, worked = time.perf_counter(), time.process_time()
            back[wire] = jax.block_until_ready(plan.inverse(jax.block_until_ready(plan(x))))
            seconds[wire].append(time.perf_counter() - begun)
            cpu[wire].append(time.process_time() - worked)
    for wire, plan in plans.items():
        (mine,), (came,) = x.addressable_shards, back[wire].addressable_shards
        off = np.linalg.norm(np.asarray(came.data) - np.asarray(mine.data)) / np.linalg.norm(np.asarray(mine.data))
        sent = {"bytes_each_way": plan.work.sent_bytes, "error_back": float(off), "error_expected": plan.error}
        yield {
            "wire": wire,
            "shape": [size] * 3,
            "processes": PROCESSES,
            "seconds": seconds[wire],
            "seconds_of_cpu": cpu[wire],
            **sent,
            **facts,
        }


def accuracy(sizes: tuple[int, ...] = SIZES) -> Iterator[dict[str, Any]]:
    """A row for each tier and wire and each N: the errors of all fields, and what the plan prints."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 8)
    jax.config.update("jax_enable_x64", True)
    from jax.sharding import PartitionSpec as P

    import meshfft as mf
    from benchmarks.made import circumstances

    mesh, facts = jax.make_mesh((8,), ("x",)), circumstances(PACKAGES)
    sliced = [("transpose", tier, "exact") for tier in TIERS if TIERS[tier].slices]
    ways = [("kdft", tier, "exact") for tier in TIERS] + sliced
    ways += [("transpose", tier, wire) for tier, wire in over_wires()]
    for n in sizes:
        lines = fields(n)
        for method, tier, wire in ways:
            if method == "kdft" and TIERS[tier].slices and n > MOST_SLICED:
                continue
            kind = np.complex128 if tier == "float64" or TIERS[tier].slices else np.complex64
            given = lines.astype(kind)
            truth = np.fft.fft(given.astype(np.clongdouble))
            how: dict[str, Any] = {"method": method, "precision": tier, "wire": wire, "axes": (1,)}
            plan = mf.plan(lines.shape, mesh=mesh, spec=P(None, "x"), dtype=kind, **how)
            found = mf.gather(plan(mf.shard(given, mesh, P(None, "x"))))
            errors = [
                float(np.linalg.norm(y - true) / np.linalg.norm(true)) for y, true in zip(found, truth, strict=True)
            ]
            row = {"n": n, "method": method, "precision": tier, "wire": wire, "error_expected": plan.error}
            yield {**row, **dict(zip(FIELDS, errors, strict=True)), **facts}


def over_wires() -> list[tuple[str, str]]:
    """The wires of both precisions; bfloat16 lacks the range of float64."""
    return [
        (tier, wire) for tier in ("float32", "float64") for wire in WIRES if (tier, wire) != ("float64", "bfloat16")
    ]


def fields(n: int) -> np.ndarray:
    """Lines of n numbers: FIELDS."""
    random, k = np.random.default_rng(n), np.abs(np.fft.fftfreq(n, 1 / n))
    noise, other = (random.standard_normal(n) + 1j * random.standard_normal(n) for _ in range(2))
    spike, side = np.zeros(n, complex), 2 ** (n.bit_length() // 2)
    spike[n // 3] = 1
    down, across = np.meshgrid(np.linspace(-1, 1, n // side), np.linspace(-1, 1, side), indexing="ij")
    picture = sum(by * (((down - y) / a) ** 2 + ((across - x) / b) ** 2 <= 1) for y, x, a, b, by in ELLIPSES)
    return np.stack(
        [noise, np.fft.ifft(other * 10 ** (-DECADES * k / k.max())), spike, np.ravel(picture).astype(complex)]
    )


def print_accuracy(rows: list[dict[str, Any]]) -> None:
    """A table for docs/accuracy.md: at every N the worst of the four fields, and each of them at the longest."""
    sizes = sorted({row["n"] for row in rows})
    heads = ["how", "printed", *(f"N = {n}" for n in sizes), *(f"{field}, longest" for field in FIELDS)]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    ways = {tuple(row[name] for name in ("method", "precision", "wire")): dict[int, dict[str, Any]]() for row in rows}
    for row in rows:
        ways[row["method"], row["precision"], row["wire"]][row["n"]] = row
    for same in ways.values():
        row = same[max(same)]
        what = (
            f"KDFT, {row['precision']}" if row["method"] == "kdft" else f"FFT, {row['precision']}, wire {row['wire']}"
        )
        worst = [f"{max(same[n][field] for field in FIELDS):.1e}" if n in same else "" for n in sizes]
        printed = f"{max(one['error_expected'] for one in same.values()):.1e}"
        print("| " + " | ".join([what, printed, *worst, *(f"{row[field]:.1e}" for field in FIELDS)]) + " |")


def print_loopback(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        least, middle, cpu = min(row["seconds"]), float(np.median(row["seconds"])), min(row["seconds_of_cpu"])
        took = f"there and back {middle:.3f} s (least {least:.3f}, of CPU {cpu:.3f})"
        errors = f"error back {row['error_back']:.1e}, of one way below {row['error_expected']:.1e}"
        print(f"{row['wire']:9} {row['bytes_each_way'] / 1e6:6.1f} MB each way, {took}, {errors}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("loopback", "accuracy"))
    parser.add_argument("--rows", type=Path, help="file of rows that is written, one JSON line each")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", type=int, default=256, help="of loopback: the array is size^3")
    parser.add_argument("--link", default="loopback", help="of loopback: what carries the bytes, written into the rows")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of accuracy: numbers of a line")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.process is not None:
        for row in one_process(given.process, given.address, given.rounds, given.size):
            print(json.dumps(row), flush=True)
        return
    rows = loopback(given.rounds, given.size) if given.what == "loopback" else list(accuracy(tuple(given.sizes)))
    link = {"link": given.link} if given.what == "loopback" else {}
    rows = [{**row, **link, "command": shlex.join(["python", *sys.orig_argv[1:]])} for row in rows]
    (print_loopback if given.what == "loopback" else print_accuracy)(rows)
    if given.rows is not None:
        from benchmarks.jsonl import write

        write(given.rows, rows)


if __name__ == "__main__":
    main()
