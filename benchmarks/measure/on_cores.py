"""Baselines that take all cores and one array: scipy.fft, FFTW, MKL, and finufft along each dimension.

Each call makes a new result, but FFTW's, whose plan writes to its own: that favours it.
"""

import math
from collections.abc import Callable
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
    call, workers = scipy_call(case.kind), _threads(case, place)
    return ready(lambda: call(data.x, workers=workers), data)


def prepare_fftw(case: Case, data: Data, place: Place) -> Prepared:
    pyfftw = import_module("pyfftw")
    given = pyfftw.empty_aligned(data.x.shape, case.dtype)
    result = pyfftw.empty_aligned(data.truth.shape, _result(case, data))
    axes = tuple(range(len(case.shape)))
    direction: Any = [FFTW_TRIG[case.kind]] * len(axes) if case.kind in FFTW_TRIG else "FFTW_FORWARD"
    plan = pyfftw.FFTW(given, result, axes, direction, ("FFTW_MEASURE",), _threads(case, place))
    given[...] = data.x  # measuring has overwritten it
    return ready(plan, data, {"fftw": str(pyfftw.fftw_version)})


def prepare_mkl(case: Case, data: Data, place: Place) -> Prepared:
    mkl_fft = import_module("mkl_fft")
    call = {"fft": mkl_fft.fftn, "rfft": mkl_fft.rfftn}[case.kind]
    return ready(lambda: call(data.x), data)


def prepare_finufft(case: Case, data: Data, place: Place) -> Prepared:
    """finufft's transforms of type 2, of all lines at once, along one dimension after the other.

    finufft's modes are centred: its samples lack the phase of n // 2 modes, which each call puts in.
    """
    finufft = import_module("finufft")
    steps: list[Callable[[np.ndarray], np.ndarray]] = []
    shape = list(case.shape)
    for axis, turns in enumerate(data.turns):
        n, lines = shape[axis], math.prod(shape[:axis] + shape[axis + 1 :])
        plan = finufft.Plan(2, (n,), n_trans=lines, eps=EPS[case.dtype], isign=-1, dtype=case.dtype)
        plan.setpts((2 * np.pi * turns).astype(np.finfo(case.dtype).dtype))
        phase = np.exp(-2j * np.pi * ((n // 2) * turns % 1)).astype(case.dtype)
        steps.append(_along(plan, phase, axis, n))
        shape[axis] = len(turns)

    def call() -> np.ndarray:
        y = data.x
        for step in steps:
            y = step(y)
        return y

    return ready(call, data)


def _along(plan: Any, phase: np.ndarray, axis: int, n: int) -> Callable[[np.ndarray], np.ndarray]:

    def step(y: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(np.moveaxis(y, axis, -1))
        found = np.asarray(plan.execute(rows.reshape(-1, n))).reshape(*rows.shape[:-1], len(phase))
        found *= phase
        return np.moveaxis(found, -1, axis)

    return step


def _threads(case: Case, place: Place) -> int:
    return place.cores if case.method == THREADS else 1


def _result(case: Case, data: Data) -> str:
    real = np.finfo(case.dtype).dtype
    return real.name if data.truth.dtype.kind == "f" else np.result_type(real, np.complex64).name
