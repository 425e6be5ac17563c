"""Tables and series of measured rows, by part."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..measure.measured import median_of, name_of
from ..measure.words import NONE, mesh_words, ms, shape_words
from ..nodes import HEADS, cells
from ..plans import MOST
from ..rows import Values, grouped
from ..wires import FIELDS
from .modelled import THEIRS
from .text import Named, Series, error, extremes, hundredths, markdown, number

SHAPES = {"slab (8,)": "8", "pencil (2, 4)": "2,4", "block (2, 2, 2)": "2,2,2"}
BESIDE = {  # lines of the table beside mpi4py-fft: the length, and the program
    "256^3, by a plan": (256, "alone"),
    "256^3, forward and back, each of ten in a `scan`": (256, "a turn"),
    "512^3, by a plan": (512, "alone"),
    "512^3, by a plan, memory kept": (512, "alone, kept"),
    "512^3, donated": (512, "donated"),
    "512^3, donated, forward and back, each of three in a `scan`": (512, "a turn, donated"),
}
OTHERS = {
    "meshfft, natural order": "meshfft transpose natural",
    "meshfft, any order": "meshfft transpose any",
    "sharded `jnp.fft.fftn`": "jnp-sharded",
}
KINDS = ("once", "a turn")  # what mpi4py-fft's best is of
GRIDS = {"8": ("1,8", "8,1"), "2,4": ("2,4", "4,2")}  # of jaxDecomp, that are slabs and pencils
DENSE = {"dense, ms": "dense, uniform", "FFT, ms": "FFT", "finufft, ms": "finufft"}
RATIOS, ERRORS = ("dense / FFT", "dense / finufft"), ("error, dense", "error, finufft")
INVERSES = ("x, c64", "scaled x, c64", "x, c128", "scaled x, c128")
SCATTERED: tuple[str, ...] = ("points", "tol", *("type 2, placed", "finufft"), *("type 1, placed", "finufft"))
SCATTERED += ("ratios 2, 1", "errors: ours, finufft")
GPU = ("meshfft_ms", "jnp_ms", "jaxdecomp_ms", "planned_ms")
CONVOLUTIONS = ("length", "by", "devices", "seconds", "compile", "received by a device", "temporaries", "errors")
HERE = ("array", "mesh", "the authors' program", *("cooley-tukey", "ratio", "auto", "ratio"), "errors: theirs, ours")


def programs(rows: Sequence[Values]) -> Named:
    """Ratios are to mpi4py-fft's best of the same run."""
    found = defaultdict[tuple[int, str], dict[str, tuple[float, float, float]]](dict)  # ms, ratio and blocks, by mesh
    for run in grouped(rows, lambda row: row["command"]):
        times = [(row["program"], statistics.median(row["seconds"])) for row in run]
        best = {kind: min(s for one, s in times if (one["by"], one["kind"]) == ("mpi4py-fft", kind)) for kind in KINDS}
        for one, seconds in times:
            if one["by"] == "meshfft":
                how, mesh = one["how"] + ", kept" * run[0]["keep"], ",".join(map(str, one["mesh"]))
                way = run[0]["shape"][0], how
                found[way][mesh] = (1e3 * seconds, best[one["kind"]] / seconds, one["blocks"])
    lines = ([words, *(_ratio(*found[way][mesh][:2]) for mesh in SHAPES.values())] for words, way in BESIDE.items())
    yield "table mpi4py-fft", markdown(("ms, ratio", *SHAPES), lines)
    for kind, how in (("once", "alone"), ("a turn", "a turn")):
        ratios = {mesh: ratio for mesh, (_, ratio, _) in found[256, how].items()}
        yield f"beside mpi4py-fft {kind}", Series(ratios, hundredths)
    yield "programs blocks", Series({"most": max(blocks for *_, blocks in found[512, "alone"].values())}, hundredths)


def _ratio(milliseconds: float, ratio: float) -> str:
    return f"{milliseconds:.0f}, {'**' * (ratio > 1)}{ratio:.2f}{'**' * (ratio > 1)}"


def fft(rows: Sequence[Values]) -> Named:
    medians = {(name_of(row), mesh_words(row)): median_of(row) for row in rows if row["seconds"]}
    times = {words: [medians[name, mesh] for mesh in SHAPES.values()] for words, name in OTHERS.items()}
    yield "table jnp.fft", markdown(("256^3, ms", *SHAPES), ([words, *map(ms, times[words])] for words in OTHERS))
    ours, _, theirs = times.values()
    over = (b / a for a, b in zip(ours, theirs, strict=True))
    yield "beside jnp-sharded", Series(dict(zip(SHAPES.values(), over, strict=True)), "{:.0f}".format)
    alone = {"jnp": medians["jnp", NONE], "scipy": min(s for (name, _), s in medians.items() if "scipy" in name)}
    yield "fft one device", Series({library: 1e3 * seconds for library, seconds in alone.items()}, "{:.0f}".format)
    if rivals := {grid: s for (way, grid), s in medians.items() if "jaxdecomp" in way}:
        best = {mesh: min(rivals[one] for one in grids) for mesh, grids in GRIDS.items()}
        ratios = {mesh: seconds / medians[OTHERS["meshfft, any order"], mesh] for mesh, seconds in best.items()}
        yield "beside jaxdecomp", Series(ratios, "{:.1f}".format)


def dense(rows: Sequence[Values]) -> Named:
    tables = {same[0]["table"]: same for same in grouped(rows, lambda row: row["table"])}
    yield "table dense", markdown(("N", "M", *DENSE, *RATIOS, *ERRORS), map(_dense, tables["speed"]))
    for row in tables["phases"]:
        ways = {"kdft": "KDFT, ", "vander": "`numpy.vander`, "}
        types = {f"{way}-{bits}": row[f"{words}complex{bits}"] for way, words in ways.items() for bits in (64, 128)}
        yield f"phases {row['N']}", Series(types, error)
    inverses = (
        [row["points"], _condition(row["condition"]), row["solved by"], *(_short(row[name]) for name in INVERSES)]
        for row in tables["inverse"]
        if row["N"] == 256
    )
    yield "table inverses", markdown(("points", "condition", "solved by", *INVERSES), inverses)
    for same in grouped(tables["inverse"], lambda row: row["points"]):
        yield f"condition {same[0]['points']}", Series({str(row["N"]): row["condition"] for row in same}, _condition)
    for same in grouped(tables["regularised"], lambda row: row["points"]):
        yield f"regularised {same[0]['points']}", Series({row["asked"]: row["x"] for row in same}, _short)


def _dense(row: Values) -> list[str]:
    numbers = (number(row[name]) for name in (*DENSE.values(), *RATIOS))
    return [str(row["N"]), str(row["M"]), *numbers, *(error(row[name]) for name in ERRORS)]


def _condition(value: float) -> str:
    return f"{value:.3g}" if value < 1e4 else f"{value:.0e}"


def _short(value: float | str) -> str:
    return value if isinstance(value, str) else error(value) if value < 0.01 else f"{value:.3g}"


def wires(rows: Sequence[Values]) -> Named:
    """Errors are the worst of all fields."""
    dense = [row for row in rows if (row["n"], row["method"]) == (8192, "kdft")]
    sent = [row for row in rows if (row["n"], row["method"], row["precision"]) == (65536, "transpose", "float32")]
    yield "tiers", Series({row["precision"]: max(row[field] for field in FIELDS) for row in dense}, error)
    yield "wires printed", Series({row["wire"]: row["error_expected"] for row in sent}, error)
    yield "wires measured", Series({row["wire"]: max(row[field] for field in FIELDS) for row in sent}, error)


def bounds(rows: Sequence[Values]) -> Named:
    worst = defaultdict[str, float](float)
    for row in rows:
        tier = "".join(itertools.takewhile(lambda letter: letter != "x", row["precision"]))
        name = tier if row["method"] == "kdft" or not tier.startswith("float") else "fft"
        worst[name] = max(worst[name], *row["over"].values())
    yield "bounds", Series(dict(worst), hundredths)


def inverse(rows: Sequence[Values]) -> Named:
    for name in ("first", "second", "iterations"):
        yield f"inverse {name}", Series({f"{row['N']}-{row['method']}": row[name] for row in rows}, "{:.2g}".format)


def scattered(rows: Sequence[Values]) -> Named:
    found = [{(row["case"], row["type"]): row for row in same} for same in grouped(rows, _where)]
    yield "table scattered", markdown(SCATTERED, ([*_scattered(one)] for one in found))
    ratios = [*itertools.chain(*map(_over, found))]
    yield "beside finufft", Series(extremes(1 / ratio for ratio in ratios), "{:.1f}".format)


def _where(row: Values) -> tuple[str, float]:
    return row["trajectory"], row["tol"]


def _over(one: dict[tuple[str, int], Values]) -> list[float]:
    return [one["meshfft", kind]["cpu_ms"] / one["finufft", kind]["cpu_ms"] for kind in (2, 1)]


def _scattered(one: dict[tuple[str, int], Values]) -> Iterator[str]:
    trajectory, tol = _where(one["meshfft", 2])
    yield from (trajectory, f"{tol:.0e}")
    for kind in (2, 1):
        yield ", ".join(f"{one[name, kind]['cpu_ms']:.0f}" for name in ("meshfft", "meshfft, placed"))
        yield f"{one['finufft', kind]['cpu_ms']:.0f}"
    yield ", ".join(map(hundredths, _over(one)))
    yield ", ".join(error(one[name, 2]["error"]) for name in ("meshfft", "finufft"))


def long_convolution(rows: Sequence[Values]) -> Named:
    yield "table long convolutions", markdown(CONVOLUTIONS, map(_convolved, rows))


def _convolved(row: Values) -> list[str]:
    sizes = (f"{row[name] / 1e6:.1f} MB" for name in ("received_bytes", "temporary_bytes"))
    errors = ", ".join(error(row[name]) for name in ("error", "gradient_error"))
    seconds = (statistics.median(row["seconds"]), row["compile_seconds"])
    return [str(row["length"]), row["by"], str(row["devices"]), *(f"{one:.2f} s" for one in seconds), *sizes, errors]


def authors(rows: Sequence[Values]) -> Named:
    """The authors' program and ours: medians of the runs' medians, and ratios within a run."""
    yield "table here", markdown(HERE, map(_here, grouped(rows, lambda row: (shape_words(row), mesh_words(row)))))
    yield "here load", Series(extremes(row["load_before"] for row in rows), "{:.1f}".format)


def _here(rows: Sequence[Values]) -> list[str]:
    theirs, *ours = ([median_of(row) for row in rows if way in name_of(row).split()] for way in (THEIRS, *HERE[3:7:2]))
    line = [shape_words(rows[0]), mesh_words(rows[0]), ms(statistics.median(theirs))]
    for one in ours:
        ratios = [a / b for a, b in zip(theirs, one, strict=True)]
        line += [ms(statistics.median(one)), " to ".join(dict.fromkeys(f"{x:.3g}" for x in (min(ratios), max(ratios))))]
    errors = (max(row["error"] or 0.0 for row in rows if (row["library"] == THEIRS) == its) for its in (True, False))
    return [*line, ", ".join(map(error, errors))]


def links(rows: Sequence[Values]) -> Named:
    for same in grouped(rows, lambda row: row["rate"]):
        medians = {row["wire"]: statistics.median(row["seconds"]) for row in same}
        yield f"links {same[0]['rate'] or 'loopback'}", Series(medians | extremes(medians.values()), hundredths)


def compiling(rows: Sequence[Values]) -> Named:
    spent = {method: [row["cpu_seconds"] for row in rows if row["method"] == method] for method in ("auto", "kdft")}
    yield "compile", Series(extremes(spent["auto"]) | {"kdft": max(spent["kdft"])}, "{:.0f}".format)


def profile(rows: Sequence[Values]) -> Named:
    steps, kinds = (list(dict.fromkeys(row[name] for row in rows)) for name in ("name", "kind"))
    spent = {(row["name"], row["kind"]): 1e3 * row["seconds"] for row in rows}
    lines = [[step, *(spent.get((step, kind), 0.0) for kind in kinds)] for step in steps]
    whole = ["run", *(sum(line[at] for line in lines) for at in range(1, len(kinds) + 1))]
    table = ([name, *(f"{one:.1f}" for one in (*numbers, sum(numbers)))] for name, *numbers in (*lines, whole))
    yield "table profile", markdown(("ms", *kinds, "total"), table)


def plans(rows: Sequence[Values]) -> Named:
    peaks = [row["peak"] for row in rows]
    yield "plans", Series(extremes(peaks) | {"median": statistics.median(peaks)}, hundredths)
    exceeded = sum(one > MOST for one in peaks)
    yield "plans number", Series({"draws": len(peaks), "exceeded": exceeded}, "{:.0f}".format)


def tolerance(rows: Sequence[Values]) -> Named:
    yield "tolerance", Series({"worst": max(row["error"] for row in rows)}, hundredths)


def gpu(rows: Sequence[Values]) -> Named:
    """Rows of a GPU that was lent once, typed from its output."""
    kinds = {name: list(same) for name, same in itertools.groupby(rows, lambda row: row["measured"])}
    lines = ([row["array"], *(f"{row[name]:.3g}" if name in row else NONE for name in GPU)] for row in kinds["fft"])
    yield "table gpu", markdown(("one H200, ms", "meshfft", "`jnp.fft`", "jaxDecomp", "modelled"), lines)
    for kind in ("type2_ms", "type1_ms"):
        found = {row["trajectory"]: row[kind] for row in kinds["scattered"]}
        yield f"gpu {kind[:5]}", Series(found, "{:.0f}".format)
    over = [row["over"] for row in kinds["draws"]] + [row["over"]["noise"] for row in kinds["bounds"]]
    yield "gpu over", Series({"most": max(over)}, hundredths)
    yield "gpu draws", Series({"number": len(kinds["draws"])}, "{:.0f}".format)


def nodes(rows: Sequence[Values]) -> Named:
    yield "table nodes", markdown(HEADS, map(cells, rows))


def regret(rows: Sequence[Values]) -> Named:
    for name in ("plan", "measured"):
        values = [row[name] for row in rows]
        yield f"regret {name}", Series(extremes(values) | {"median": statistics.median(values)}, hundredths)
