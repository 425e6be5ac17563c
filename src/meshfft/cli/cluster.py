"""The processes of one run: how a worker finds the others, and how many devices it brings."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import typer

from ..errors import check
from .supervise import supervised

JOIN_SECONDS = 120


class Cluster(NamedTuple):
    """How to find the others: what is None, JAX has to detect."""

    coordinator: str | None
    processes: int | None
    process: int | None


def cluster_of(distributed: bool, coordinator: str | None, processes: int | None, index: int | None) -> Cluster | None:
    """The cluster that flags describe; None where this process is alone.

    Raises:
        ValueError: flags that do not go together.
    """
    by_hand = coordinator is not None or index is not None
    if not by_hand and not distributed:
        check(processes is None, "--processes needs --coordinator HOST:PORT and --process-id I, or --distributed")
        return None
    many = 1 if processes is None else processes
    check(many > 0, f"--processes {processes} is not a number of processes: give at least 1")
    if by_hand:
        check(not distributed, "--distributed finds the processes by itself: leave out --coordinator and --process-id")
        whole = coordinator is not None and processes is not None and index is not None
        check(whole, "--coordinator HOST:PORT, --processes N and --process-id I go together: give all three")
        host, _, port = (coordinator or "").rpartition(":")
        meant = bool(host) and port.isdecimal() and 0 < int(port) < 2**16
        check(meant, f"--coordinator {coordinator!r} is no HOST:PORT: give one, as 10.0.0.1:8476")
        check(0 <= (index or 0) < many, f"--process-id {index} is none of {many} processes: give 0 to {many - 1}")
    return Cluster(coordinator, processes, index)


def run_in(cluster: Cluster | None, devices: Callable[[], int], target: Path, work: Callable[[], None]) -> None:
    """Runs `work` here, or as one of several processes, whose devices together are as many as `devices` tells."""
    if cluster is None:
        work()
        return
    found = supervised(work, lambda: join(cluster, devices()), lambda worker: clean(target, worker))
    if found.text:
        typer.echo(f"meshfft: error: {found.text}", err=True)
    raise typer.Exit(found.code)


def join(cluster: Cluster, devices: int) -> list[str]:
    """Makes this process one of several; returns the names by which process 0 may be reached.

    Raises:
        ValueError: the devices cannot be shared out evenly, or there is no cluster that JAX knows.
    """
    import jax

    many = cluster.processes or 1
    check(devices % many == 0, f"the mesh has {devices} devices for {many} processes: give a multiple of {many}")
    if cluster.processes is not None:
        jax.config.update("jax_num_cpu_devices", devices // cluster.processes)
    jax.config.update("jax_enable_preemption_service", False)  # it would keep SIGTERM to itself
    try:
        jax.distributed.initialize(*cluster, initialization_timeout=JOIN_SECONDS)
    except ValueError as error:
        remedy = "give --coordinator HOST:PORT --processes N --process-id I"
        raise ValueError(f"JAX finds no cluster around this process ({error}): {remedy}") from error
    own = socket.gethostname()
    return [cluster.coordinator.rpartition(":")[0].strip("[]"), own] if cluster.coordinator else [socket.getfqdn(), own]


def clean(target: Path, worker: int) -> None:
    """Removes what a worker that was killed left of an output."""
    from ..atomic import unfinished

    for path in unfinished(target, worker):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
