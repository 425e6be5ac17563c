"""Baselines that take all cores and one array: scipy.fft, FFTW and MKL.

Each call makes a new result; only FFTW's plan writes to its own buffer, which favours it.
"""

from importlib import import_module
from typing import Any

import numpy as np

from .cases import Case
from .data import Data, Place, Prepared, ready, scipy_call

ONE, THREADS = "one-thread", "threads"  # a small array may be faster on one
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


def _threads(case: Case, place: Place) -> int:
    return place.cores if case.method == THREADS else 1


def _result(case: Case, data: Data) -> str:
    real = np.finfo(case.task.dtype).dtype
    return real.name if data.truth.dtype.kind == "f" else np.result_type(real, np.complex64).name
