"""The processes and devices of one run: how processes find each other, agree, and end together.

Only JAX's coordination service, in process 0, listens on the network. It notices a lost process within HEARTBEAT
seconds, writes its number to stderr, and aborts the rest (SIGABRT, exit code 134 in shells).
"""

import math
import os
import re
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh

from ..atomic import unfinished
from ..collectives.processes import PeerError, check_alike, from_all, together
from ..extras import all_versions
from ..io import check_disjoint, check_output
from ..layout.memory import available_bytes, device_bytes
from .flags import Files, Joining, check_count
from .output import REFUSALS, Lost, describe, ended, warn

T = TypeVar("T")
CRASHED = 1  # exit code of a failed collective; another process may have caused it
CODES = ((KeyboardInterrupt, 130), (PeerError, 3), (RuntimeError, CRASHED), (REFUSALS, 2))
STATUS = re.compile("[A-Z_]+: ")  # start of an XLA error, which may be a ValueError
SIGNALLED = {KeyboardInterrupt: "interrupted by the user", SystemExit: "terminated"}
JOIN_SECONDS = 120
HEARTBEAT = 12  # seconds of silence after which a process is lost
PATIENCE = 20.0  # seconds to wait for JAX's report of a lost process
FAREWELL = 5.0  # seconds to wait after a refusal, so that all can refuse
MOST_VIRTUAL = 256  # CPU devices of one process: more take minutes for a collective
FINISH_SECONDS = 3600  # that finished processes wait for process 0 to draw and print
# For the TPU compiler when it loads: ask no metadata server, start no TPU, share the lock file.
ENVIRONMENT = {"TPU_SKIP_MDS_QUERY": "1", "JAX_PLATFORMS": "cpu", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}


def joins(joining: Joining) -> bool:
    """Whether this is one of several processes."""
    distributed, coordinator, processes, index = joining
    by_hand = coordinator is not None or index is not None
    if not by_hand and not distributed:
        if processes is not None:
            raise ValueError("--processes needs --coordinator HOST:PORT and --process-id I, or --distributed")
        return False
    if processes is not None:
        check_count(processes, "--processes", "processes")
    if by_hand:
        if distributed:
            raise ValueError("--distributed finds the processes by itself: leave out --coordinator and --process-id")
        if coordinator is None or processes is None or index is None:
            raise ValueError("--coordinator HOST:PORT, --processes N and --process-id I go together: give all three")
        address = re.fullmatch(".+:([0-9]{1,5})", coordinator)
        if not address or not 0 < int(address[1]) < 2**16:
            raise ValueError(f"--coordinator {coordinator!r} is no HOST:PORT: give one, as 10.0.0.1:8476")
        if not 0 <= index < processes:
            raise ValueError(f"--process-id {index} is none of {processes} processes: give 0 to {processes - 1}")
    return True


def deciding(target: Path, files: Files, flags: Mapping[str, object]) -> dict[str, str]:
    words = {"None": "not given", "False": "not given", "True": "given"}
    values = {**flags, "dataset": files.dataset, "overwrite": files.overwrite}
    named = {f"--{name.replace('_', '-')}": words.get(str(value), str(value)) for name, value in values.items()}
    return {"OUT": str(target.resolve()), **named, **all_versions()}


def agree(facts: Mapping[str, object]) -> None:
    if jax.distributed.is_initialized():
        check_alike(facts)


def everywhere(work: Callable[[], T]) -> T:
    """The result of `work`; if it fails in one process, it fails in all. Needs no mesh."""
    return together(work) if jax.distributed.is_initialized() else work()


def check_files(target: Path, overwrite: bool, inputs: Sequence[Path], kinds: Sequence[str] = ()) -> None:
    """Refuses an output that could not be written; process 0 names files that killed runs left beside it."""
    check_output(target, overwrite, 0, kinds)
    for path in inputs:
        check_disjoint(path, target)
    if jax.distributed.is_initialized() and jax.process_index() > 0:
        return
    for path in unfinished(target):
        text = f"{path} is of a run that was killed, or of one that writes the same output now"
        warn(f"meshfft: note: {text}: remove it if there is none")


def run_in(joining: Joining, ask: Callable[[], T], count: Callable[[T], int], run: Callable[[T], None]) -> None:
    """Runs a command here, or as one of several processes; if one refuses, all do.

    `ask` reads the flags, `count` gives the number of devices in all processes, `run` does the work.
    """
    if not joins(joining):
        run(ask())
        return
    try:
        if not isinstance(sys.stdout, Lost):  # communication libraries write to it too
            sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        refusal: Exception | None = None
        own: int | None = 1
        try:
            asked = ask()
            own = _share(joining.processes, count(asked))
        except REFUSALS as error:
            refusal = error

        def agreed() -> T:
            if refusal is not None:
                raise refusal
            return asked

        _join(joining, own)
        run(together(agreed))
        jax.distributed.shutdown()  # when all are here: process 0's service ends with it
    except BaseException as error:
        _fail(error)
    os._exit(ended(0))  # a normal exit would make JAX wait for the other processes again


def _share(processes: int | None, count: int) -> int | None:
    """This process's CPU devices; None if the environment sets them."""
    if processes is None:
        return None
    own = -(-count // processes)  # `start_mesh` refuses a rest
    check_virtual(own)
    return own


def _join(joining: Joining, own: int | None) -> None:
    if own is not None:
        jax.config.update("jax_num_cpu_devices", own)
    jax.config.update("jax_enable_preemption_service", False)  # it would catch SIGTERM
    try:
        jax.distributed.initialize(
            *joining[1:],  # JAX detects those that are None
            initialization_timeout=JOIN_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=FINISH_SECONDS,
        )
    except ValueError as error:
        remedy = "give --coordinator HOST:PORT --processes N --process-id I"
        raise ValueError(f"JAX finds no cluster around this process ({error}): {remedy}") from error
    except RuntimeError as error:
        remedy = "start all of them within two minutes, with the same free port of process 0"
        raise PeerError(f"the processes did not find each other ({describe(error)}): {remedy}") from error


def _fail(error: BaseException) -> NoReturn:
    """Reports the error, lets the other processes end, and ends this one."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    code = next((code for kind, code in CODES if isinstance(error, kind)), CRASHED)
    if isinstance(error, ValueError) and STATUS.match(str(error)):
        code = CRASHED
    if isinstance(error, SystemExit):
        code = int(error.code or 0)
    elif not isinstance(error, (KeyboardInterrupt, *REFUSALS)):
        traceback.print_exception(error)
    text = describe(error) if isinstance(error, REFUSALS) else SIGNALLED.get(type(error), type(error).__name__)
    warn(f"meshfft: error: {text}")
    if code == CRASHED:
        warn("meshfft: waiting for JAX to tell whether a process was lost, and which")
        time.sleep(PATIENCE)
    else:
        waiting = threading.Thread(target=jax.distributed.shutdown, daemon=True)
        waiting.start()
        waiting.join(FAREWELL)
    os._exit(code)


def start_mesh(sizes: dict[str, int]) -> Mesh:
    """A mesh of running devices, as many of each process; before any other use of JAX."""
    count = math.prod(sizes.values())
    devices, processes = running_devices(count), jax.process_count()
    there = f"there are {len(devices)} {devices[0].platform} devices" + f" of {processes} processes" * (processes > 1)
    if len(devices) < count:
        raise ValueError(f"the mesh has {count} devices and {there}: give a smaller --mesh")
    if count % processes != 0:
        raise ValueError(f"the mesh has {count} devices and {there}: give a multiple of {processes}")
    share = count // processes
    if processes > 1:
        devices = [device for process in range(processes) for device in jax.local_devices(process)[:share]]
        if len(devices) < count:
            raise ValueError(f"the mesh has {share} devices a process and some have fewer: make it smaller")
    return mesh_of(sizes, devices)


def mesh_of(sizes: dict[str, int], devices: Sequence[jax.Device]) -> Mesh:
    axes = (AxisType.Auto,) * len(sizes)
    return jax.make_mesh(tuple(sizes.values()), tuple(sizes), axes, devices=devices[: math.prod(sizes.values())])


def running_devices(count: int) -> list[jax.Device]:
    """The machine's devices, or CPU devices if too few: `count` of them unless JAX has started."""
    try:
        jax.config.update("jax_num_cpu_devices", min(count, MOST_VIRTUAL))
    except RuntimeError:
        pass
    else:
        check_virtual(count)
    devices = jax.devices()
    return devices if len(devices) >= count or jax.process_count() > 1 else jax.devices("cpu")


def describe_mesh(sizes: dict[str, int]) -> AbstractMesh:
    return AbstractMesh(tuple(sizes.values()), tuple(sizes))


def mesh_here(sizes: dict[str, int]) -> Mesh | AbstractMesh:
    """The mesh that would run here, for planning; if devices are too few, of CPU devices that are not started."""
    if math.prod(sizes.values()) <= len(jax.devices()):
        return mesh_of(sizes, jax.devices())
    kind = jax.make_mesh((1,), ("x",), devices=jax.devices("cpu")[:1]).abstract_mesh.abstract_device
    described: AbstractMesh = describe_mesh(sizes).update(abstract_device=kind)
    return described


def check_virtual(count: int) -> None:
    if count > MOST_VIRTUAL:
        text = f"--mesh asks for {count} devices of one process, which can have {MOST_VIRTUAL} virtual ones at most"
        raise ValueError(f"{text}: give fewer, or plan for a described machine with meshfft plan")


def check_run(peak_bytes: int, devices: Sequence[jax.Device]) -> None:
    hosts = [*from_all(socket.gethostname()).values()]
    together(lambda: check_memory(peak_bytes, devices, hosts.count(socket.gethostname())))


def check_memory(peak_bytes: int, devices: Sequence[jax.Device], processes: int = 1) -> None:
    """Refuses what does not fit: bytes of each device, in each process here."""
    kind, count = devices[0].platform, len(devices) * processes
    if kind == "cpu":  # devices share the host's memory
        need, free, remedy = peak_bytes * count, available_bytes(), "a machine with more memory"
    else:
        need, free, remedy = peak_bytes, device_bytes(devices[0]), "a mesh of more devices"
    if need > free:
        shares = f"{peak_bytes / 1e9:.3g} GB on each of {count} {kind} devices"
        sizes = f"{need / 1e9:.3g} GB at its peak ({shares}) and {free / 1e9:.3g} GB are free"
        raise MemoryError(f"the transform takes {sizes}: use --precision float32 or {remedy}")


def use_tpu_compiler() -> None:
    """Lets the TPU compiler load without a TPU; call it before JAX starts."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    jax.config.update("jax_enable_compilation_cache", False)  # without its devices nothing can be read back
