"""`meshfft nufft`: the spectrum of an image at scattered points, or the adjoint, file to file."""

import dataclasses
import socket
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer

import meshfft

from ..io import Source, identity, open_array, write_array
from ..io.formats.source import Box
from ..io.processes import exchange, together
from ..io.stores import KINDS
from ..nufft.plan import ScatteredPlan
from ..nufft.points import Scattered
from . import scattered as points_of
from .request import agree, everywhere
from .scattered import Asked, announce, asked_for, check_files, finish, progress_of, read_points, record, shape_words
from .terminal import flags as read
from .terminal.cluster import cluster_of, run_in
from .terminal.devices import check_memory, start_mesh
from .terminal.output import guarded


@guarded
def nufft(
    source: Annotated[Path, typer.Argument(metavar="IN", help=".npy, .nii, .nii.gz, .h5, .hdf5, .nc or .zarr.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".zarr, .h5, .hdf5, .nc or .npy.")],
    points: points_of.Points = None,
    points_unit: points_of.Unit = None,
    adjoint: Annotated[bool, typer.Option("--adjoint", help="Type 1: IN holds values, OUT an image.")] = False,
    shape: points_of.Shape = None,
    mesh: points_of.Mesh_ = None,
    spec: points_of.ImageSpec = None,
    tol: points_of.Tol = 1e-6,
    sigma: points_of.Sigma = None,
    origin: points_of.Origin = "corner",
    norm: read.Norm = None,
    precision: points_of.Precision = None,
    dataset: read.Dataset = None,
    overwrite: read.Overwrite = False,
    distributed: read.Distributed = False,
    coordinator: read.Coordinator = None,
    processes: read.Processes = None,
    process_id: read.ProcessId = None,
    as_json: read.Json = False,
    log_json: read.LogJson = False,
    quiet: read.Quiet = False,
) -> None:
    """Sample the spectrum of an image at scattered points, or add such samples up.

    Type 2: c_j = sum_n x_n exp(-2 pi i k_j.n), over the last dimensions of IN,
    one for each coordinate of the points; others are a batch. With --adjoint
    type 1: x_n = sum_j c_j exp(2 pi i k_j.n), of values (..., points) to images
    of --shape: no inverse, for which see meshfft reconstruct.
    """

    def asked() -> Asked:
        known = asked_for(mesh, shape, points_unit, origin, norm, precision)
        if adjoint != (shape is not None):
            remedy = "give --shape N,N,..., the pixels of OUT" if adjoint else "leave it out, or add --adjoint"
            raise ValueError(f"--shape goes with --adjoint: {remedy}")
        how: read.Keywords = {"tol": tol, "sigma": sigma, "origin": origin, "norm": norm, "precision": precision}
        files: read.Keywords = {"source": source, "target": target, "dataset": dataset, "points": points}
        rest: read.Keywords = {"spec": spec, "overwrite": overwrite, "as_json": as_json, "log_json": log_json}
        return Asked(**known, **how, **files, **rest, quiet=quiet, more={"adjoint": adjoint})

    run_in(cluster_of(distributed, coordinator, processes, process_id), asked, lambda asked: asked.devices, _run)


def _run(asked: Asked) -> None:
    everywhere(lambda: check_files(asked, KINDS, *filter(None, [asked.points])))
    adjoint = asked.more["adjoint"]
    with open_array(asked.source, asked.dataset) as array:
        points = everywhere(lambda: read_points(asked, None if adjoint else array.shape))
        agree({**asked.deciding(points, "nufft"), **identity(array)})
        shape = _image_shape(asked, array, points) if adjoint else array.shape
        mesh, dtype = start_mesh(asked.mesh), points_of.computed(asked, array.dtype)
        plan = points_of.planned(asked, shape, points, mesh, dtype, asked.norm)
        agree({"this plan": str(plan)})
        announce(asked, f"{'Adjoint of the ' * adjoint}{plan}\n")
        hosts = exchange(socket.gethostname())
        together(lambda: check_memory(plan.peak_bytes, mesh.local_devices, hosts.count(socket.gethostname())))
        _transform(asked, array, plan, mesh)


def _image_shape(asked: Asked, array: Source, points: Scattered) -> tuple[int, ...]:
    """The images that values add up to, a batch of them where IN has one."""
    rest = array.ndim - len(points.shape)
    if rest < 0 or array.shape[rest:] != points.shape:
        both = f"{asked.source} has shape {array.shape} and the points {points.shape}"
        raise ValueError(f"{both}: give one value for each point, with batch dimensions before them")
    return (*array.shape[:rest], *(asked.shape or ()))


def _transform(asked: Asked, array: Source, plan: ScatteredPlan, mesh: jax.sharding.Mesh) -> None:
    adjoint = asked.more["adjoint"]
    kind = "nufft_adjoint" if adjoint else "nufft"
    ends = (plan.in_layout, plan.out_layout)
    comes = ends[1] if adjoint else ends[0]
    dtype, made = plan.caller.dtype, record(asked, plan, kind)
    blocks = sum(int(np.prod(layout.block)) for layout in ends) * dtype.itemsize * len(mesh.local_devices)
    with progress_of(asked, blocks, in_bytes=True) as progress:

        def read_box(box: Box, out: np.ndarray) -> None:
            array.read(box, out)
            progress.advance(out.nbytes)

        progress.begin("read")
        counted = dataclasses.replace(array, read=read_box, dtype=dtype)
        x = jax.block_until_ready(meshfft.shard(counted, mesh, comes.spec))
        progress.begin("transform")
        y = jax.block_until_ready(plan.adjoint(x) if adjoint else plan(x))
        progress.begin("write")
        about = {points_of.KEY: made}
        write_array(asked.target, y, overwrite=asked.overwrite, report=progress.advance, about=about)
    finish(asked, {**plan.caller.to_dict(), **made}, progress.timings, shape_words(y))
