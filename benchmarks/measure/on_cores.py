"""Baselines that take all cores and one array: scipy.fft, FFTW, MKL, and finufft along each dimension.

Each call makes a new result, but FFTW's, whose plan writes to its own: that favours it.
"""

import math
from importlib import import_module
from typing import Any

import numpy as np

from .cases import Case
from .data import Data, Place, Prepared, ready, scipy_call

ONE, THREADS = "one-thread", "threads"  # a small array may be faster on one
EPS = {"complex64": 1e-6, "complex128": 1e-12}  # what finufft is asked for
TYPES = ((1, "00"), (2, "10"), (3, "01"), (4, "11"))
FFTW_TRIG = {f"{name}-{t}": f"FFTW_{code}{c}" for name, code in (("dct", "REDFT"), ("dst", "RODFT")) for t, c in TYPES}


def prepare_scipy(case: Case, data: Data, place: Place) -> Prepared:
    call, workers = scipy_call(case.task.kind), _threads(case, place)
    return ready(lambda: call(data.x, workers=workers), data)


def prepare_fftw(case: Case, data: Data, place: Place) -> Prepared:
    pyfftw = import_module("pyfftw")
    given = pyfftw.empty_aligned(data.x.shape, case.task.dtype)
    result = pyfftw.empty_aligned(data.truth.shape, _result(case, data))
    axes = tuple(range(len(case.task.shape)))
    direction: Any = [FFTW_TRIG[case.task.kind]] * len(axes) if case.task.kind in FFTW_TRIG else "FFTW_FORWARD"
    plan = pyfftw.FFTW(given, result, axes, direction, ("FFTW_MEASURE",), _threads(case, place))
    given[...] = data.x  # measuring has overwritten it
    return ready(plan, data, {"fftw": str(pyfftw.fftw_version)})


def prepare_mkl(case: Case, data: Data, place: Place) -> Prepared:
    mkl_fft = import_module("mkl_fft")
    call = {"fft": mkl_fft.fftn, "rfft": mkl_fft.rfftn}[case.task.kind]
    return ready(lambda: call(data.x), data)


def prepare_finufft(case: Case, data: Data, place: Place) -> Prepared:
    """finufft's transforms of type 2, of all lines at once, along one dimension after the other."""
    steps, shape = list[tuple[Any, np.ndarray]](), list(case.task.shape)
    for axis, turns in enumerate(data.turns):
        lines = math.prod(shape[:axis] + shape[axis + 1 :])
        steps.append(finufft_lines(turns, shape[axis], lines, case.task.dtype))
        shape[axis] = len(turns)

    def call() -> np.ndarray:
        y = data.x
        for axis, (plan, phase) in enumerate(steps):
            rows = np.ascontiguousarray(np.moveaxis(y, axis, -1))
            found = plan.execute(rows.reshape(-1, rows.shape[-1])).reshape(*rows.shape[:-1], len(phase))
            found *= phase
            y = np.moveaxis(found, -1, axis)
        return y

    return ready(call, data)


def finufft_lines(turns: np.ndarray, n: int, lines: int, dtype: str) -> tuple[Any, np.ndarray]:
    """A plan for lines of n modes, and the phase of n // 2 modes that its samples lack, because modes are centred."""
    plan = import_module("finufft").Plan(2, (n,), n_trans=lines, eps=EPS[dtype], isign=-1, dtype=dtype)
    plan.setpts((2 * np.pi * turns).astype(np.finfo(dtype).dtype))
    return plan, np.exp(-2j * np.pi * ((n // 2) * turns % 1)).astype(dtype)


def _threads(case: Case, place: Place) -> int:
    return place.cores if case.method == THREADS else 1


def _result(case: Case, data: Data) -> str:
    real = np.finfo(case.task.dtype).dtype
    return real.name if data.truth.dtype.kind == "f" else np.result_type(real, np.complex64).name
