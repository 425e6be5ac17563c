"""Larger than memory: a transform in passes over the disk, by several processes that are killed and resumed.

A pass reads the array tile by tile, transforms some dimensions on the devices, writes each result, and notes it in a
journal. The tiles of the next pass cut other dimensions:

    X[k_x, k_y, k_z] = F_x (F_y F_z a[n_x, n_y, n_z])        pass 1: y and z; pass 2: x

`mf.passes` plans as few passes as a budget of bytes allows, and `run_passes` runs them. Several processes share the
tiles, each on separate devices. A run that was interrupted anywhere, here by SIGKILL, is resumed after the last tile of
each process. (In a terminal: `meshfft transform` with `--memory` and `--resume`.) The array is a sum of Gaussians,
which are products of lines, so NumPy computes its spectrum from the lines.

    python examples/larger_than_memory.py --picture larger_than_memory.png              # 8 MB in 4 MB per process
    python examples/larger_than_memory.py --size 2048 --memory 8e9 --folder /scratch    # 34 GB in 8 GB per process
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
from matplotlib.figure import Figure

import meshfft as mf
from meshfft.io import open_array
from meshfft.out_of_core import chunk_of, run_passes


def lines(n):
    """The factors of each Gaussian along x, y and z."""
    middle, width = np.random.default_rng(0).uniform([[[0.2]], [[0.01]]], [[[0.8]], [[0.05]]], (2, 3, 40)) * n
    return np.exp(-(((np.arange(n) - middle[..., None]) / width[..., None]) ** 2) / 2)


def create(path, n):
    """Writes the array plane by plane."""
    volume, (x, y, z) = np.lib.format.open_memmap(path, "w+", "f4", (n, n, n)), lines(n)
    for i in range(n):
        volume[i] = np.einsum("p,py,pz->yz", x[:, i], y, z)


def difference(path, n):
    """Relative error of 16 planes of the spectrum, and the first of them."""
    x, y, z = (f(line) for f, line in zip((np.fft.fft, np.fft.fft, np.fft.rfft), lines(n), strict=True))
    planes = range(0, n, n // 16)
    with open_array(path) as spectrum:
        found = np.stack([spectrum[i] for i in planes])
    wanted = np.einsum("px,py,pz->xyz", x[:, planes], y, z)
    return np.linalg.norm(found - wanted) / np.linalg.norm(wanted), found[0]


def work(folder, memory, processes, index, address, end):
    """Work of one process, which kills itself after moving the fraction `end` of its bytes."""
    jax.config.update("jax_num_cpu_devices", 4)
    if processes > 1:
        jax.distributed.initialize(address, processes, index)
    options, moved = {"kind": "rfft", "mesh": jax.make_mesh((4,), ("x",), devices=jax.local_devices())}, 0
    with open_array(f"{folder}/volume.npy") as volume, open(f"{folder}/{end}-{index}.log", "w", 1) as log:
        options |= {"dtype": volume.dtype, "chunk": chunk_of(volume), "fortran": volume.fortran}
        passes = mf.passes(volume.shape, budget=int(memory), **options)
        print(passes if index == 0 else "", flush=True)

        def report(nbytes):
            nonlocal moved
            moved += nbytes / (passes.read_bytes + passes.written_bytes)
            log.write(f"{time.time()} {nbytes / (passes.read_bytes + passes.written_bytes)}\n")
            if moved * processes > end:
                os.kill(os.getpid(), signal.SIGKILL)

        run_passes(passes, volume, f"{folder}/spectrum.zarr", resume=True, report=report)


def run(folder, memory, processes, end):
    """Runs the processes. Returns their exit codes, and the times at which fractions of all bytes were moved."""
    with socket.create_server(("localhost", 0)) as free:
        address = f"localhost:{free.getsockname()[1]}"
    options = [json.dumps([str(folder), memory, processes, index, address, end]) for index in range(processes)]
    started = [subprocess.Popen([sys.executable, __file__, "work", one]) for one in options]
    codes = [process.wait() for process in started]
    logs = [np.loadtxt(folder / f"{end}-{index}.log") for index in range(processes)]
    return codes, np.array(sorted(np.concatenate(logs).tolist()))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=128, help="points along each axis")
    parser.add_argument("--memory", type=float, default=4e6, help="bytes of the array that a process may hold")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", help="on a disk with room for four arrays; by default a new one")
    parser.add_argument("--picture", help="a file to draw to")
    asked = parser.parse_args(arguments)
    folder = Path(asked.folder or tempfile.mkdtemp())
    create(folder / "volume.npy", asked.size)
    (killed, before), (resumed, after) = (run(folder, asked.memory, asked.processes, end) for end in (0.6, 2))
    error, plane = difference(folder / "spectrum.zarr", asked.size)
    print(f"exit codes {killed}, then {resumed}; beside NumPy {error:.1e}")
    if asked.picture:
        figure, volume = Figure((12, 3.2), layout="constrained"), np.load(folder / "volume.npy", mmap_mode="r")
        axes = figure.subplots(1, 3)
        axes[0].plot(before[:, 0] - before[0, 0], before[:, 1].cumsum(), ".-", label="killed")
        axes[0].plot(after[:, 0] - after[0, 0], 1 - after[::-1, 1].cumsum()[::-1], ".-", label="resumed")
        axes[0].set(title="part of all bytes that was moved", xlabel="seconds")
        axes[0].legend(frameon=False)
        axes[1].imshow(volume[asked.size // 2], cmap="magma").axes.set_title("a plane of the array")
        axes[2].imshow(np.log10(abs(plane) + 1e-3), cmap="magma", aspect="auto").axes.set_title("log |X|, a plane")
        figure.savefig(asked.picture, dpi=70)
    return error, killed, resumed


if __name__ == "__main__":
    work(*json.loads(sys.argv[2])) if sys.argv[1:2] == ["work"] else main()
