"""Array files: read by slices, written shard by shard, and refused in one clear line where they are not right."""

import gzip
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from meshfft import atomic
from meshfft.errors import check
from meshfft.files import check_output, open_array, reading, write_array, writing
from meshfft.layout import Cut, Layout, from_spec

h5py, nibabel, zarr = (pytest.importorskip(name) for name in ("h5py", "nibabel", "zarr"))

VALUES = np.arange(2 * 3 * 5, dtype=np.float32).reshape(2, 3, 5)


def save(path: Path, array: np.ndarray) -> Path:
    """Writes an array as the kind of file its suffix says, by the package that defines the kind."""
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix in (".h5", ".hdf5"):
        with h5py.File(path, "w") as file:
            file["only"] = array
    elif path.suffix == ".zarr":
        zarr.save_array(path, array)
    else:
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path)
    return path


def sharded(array: np.ndarray, spec: PartitionSpec, sizes: dict[str, int]) -> jax.Array:
    """The array, zero-padded at the tail and put on a mesh, without the library's help."""
    mesh = jax.make_mesh(
        tuple(sizes.values()), tuple(sizes), devices=jax.devices()[: int(np.prod(list(sizes.values())))]
    )
    storage = from_spec(array.shape, sizes, spec).storage
    padded = np.pad(array, [(0, m - n) for m, n in zip(storage, array.shape, strict=True)], constant_values=-99)
    return jax.device_put(padded, NamedSharding(mesh, spec))


def complex_values(shape: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng(0)
    return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(np.complex64)


@pytest.mark.parametrize("name", ["a.npy", "a.NPY", "a.nii", "a.nii.gz", "a.h5", "a.hdf5", "a.zarr"])
def test_reads_every_kind_by_slices(tmp_path: Path, name: str) -> None:
    """Catches a kind of file whose values, shape or slices come back wrong, and a suffix that depends on its case."""
    path = save(tmp_path / name.lower(), VALUES)
    path = path.rename(tmp_path / name)
    with open_array(path) as source:
        assert (source.shape, source.ndim, source.dtype) == (VALUES.shape, 3, np.float32)
        np.testing.assert_array_equal(source[1:, :2, 3:], VALUES[1:, :2, 3:])
        np.testing.assert_array_equal(source[:, 0, ...], VALUES[:, 0])


def test_reads_no_more_than_the_slice(tmp_path: Path) -> None:
    """Catches a reader that fetches the whole array: these are larger than memory, and hardly stored."""
    shape = (2**20, 2**20)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("only", shape, "f4", chunks=(64, 64))
    zarr.create_array(tmp_path / "a.zarr", shape=shape, dtype="f4", chunks=(64, 64))
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 2**42)
    for name in ("a.h5", "a.zarr", "a.npy"):
        with open_array(tmp_path / name) as source:
            assert source[5:7, -3:].tolist() == [[0, 0, 0]] * 2


def test_nifti_is_scaled(tmp_path: Path) -> None:
    """Catches voxels returned as stored, without the header's slope and intercept, or with the stored dtype."""
    image = nibabel.Nifti1Image(np.arange(8, dtype=np.int16).reshape(2, 2, 2), np.eye(4))
    image.header.set_slope_inter(0.5, 10)
    nibabel.save(image, tmp_path / "a.nii.gz")
    expected = nibabel.load(tmp_path / "a.nii.gz").get_fdata()
    with open_array(tmp_path / "a.nii.gz") as source:
        assert source.dtype == np.float64
        np.testing.assert_array_equal(source[...], expected)


@pytest.mark.parametrize("code", [">f4", ">i2", ">c8"])
def test_bytes_come_in_native_order(tmp_path: Path, code: str) -> None:
    """Catches big-endian files, common in NIfTI, handed on in a byte order that JAX does not take."""
    np.save(tmp_path / "a.npy", VALUES.astype(code))
    with open_array(tmp_path / "a.npy") as source:
        assert source.dtype.isnative and source[...].dtype.isnative
        np.testing.assert_array_equal(source[...], VALUES)


def test_fortran_order_is_kept_right(tmp_path: Path) -> None:
    """Catches a .npy file in Fortran order read as if it were in C order."""
    np.save(tmp_path / "a.npy", np.asfortranarray(VALUES))
    with open_array(tmp_path / "a.npy") as source:
        np.testing.assert_array_equal(source[0], VALUES[0])


def test_astype_converts_what_is_read(tmp_path: Path) -> None:
    """Catches 64-bit integers that JAX would wrap to 32 bits instead of taking as floating point."""
    np.save(tmp_path / "a.npy", np.array([2**40, -1]))
    with open_array(tmp_path / "a.npy") as source:
        floats = source.astype(np.float32)
        assert floats.dtype == floats[:].dtype == np.float32
        assert floats[0] == 2.0**40


def two_datasets(path: Path) -> Path:
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["a"], file["group/b"] = VALUES, VALUES + 1
    else:
        group = zarr.create_group(path)
        group.create_array("a", data=VALUES)
        group.create_array("group/b", data=VALUES + 1)
    return path


@pytest.mark.parametrize("name", ["two.h5", "two.zarr"])
def test_datasets_are_chosen_by_name(tmp_path: Path, name: str) -> None:
    """Catches the wrong array of several, and an error for a wrong name, or for none, that does not list the right."""
    path = two_datasets(tmp_path / name)
    for wanted in ("group/b", "/group/b"):
        with open_array(path, wanted) as source:
            np.testing.assert_array_equal(source[...], VALUES + 1)
    for wrong in (None, "group", "c"):
        with pytest.raises(ValueError, match=r"a, group/b.*: name one of"), open_array(path, wrong):
            pass


@pytest.mark.parametrize("name", ["a.npy", "a.nii", "one.zarr"])
def test_dataset_of_a_single_array_is_refused(tmp_path: Path, name: str) -> None:
    """Catches a dataset name that is silently ignored."""
    with pytest.raises(ValueError, match="leave out"), open_array(save(tmp_path / name, VALUES), "x"):
        pass


def raises(error: BaseException) -> Any:
    """A function that does nothing but fail."""

    def fail(*_: Any) -> None:
        raise error

    return fail


def refusal(path: Path) -> str:
    """The one line that opening and reading `path` is refused with."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught, open_array(path) as source:
        source[...]
    text = str(caught.value)
    assert path.name in text and "\n" not in text and ": " in text
    return text


def test_missing_folder_and_unknown(tmp_path: Path) -> None:
    """Catches paths that are no array files ending in a traceback from deep inside a reader."""
    assert "does not exist" in refusal(tmp_path / "none.npy")
    (tmp_path / "folder.npy").mkdir()
    assert "is a folder" in refusal(tmp_path / "folder.npy")
    (tmp_path / "folder.zarr").mkdir()
    assert "not a Zarr store" in refusal(tmp_path / "folder.zarr")
    (tmp_path / "a.csv").write_text("1,2")
    assert ".npy, .nii, .nii.gz, .h5, .hdf5, .zarr" in refusal(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["a.npy", "a.nii", "a.nii.gz", "a.h5"])
@pytest.mark.parametrize("keep", [0.0, 0.02, 0.7])
def test_files_cut_short_are_refused(tmp_path: Path, name: str, keep: float) -> None:
    """Catches a truncated download read as zeros, or refused with a reader's own unclear error."""
    path = save(tmp_path / name, complex_values((32, 32, 32)).real)
    os.truncate(path, int(path.stat().st_size * keep))
    assert "damaged or cut short" in refusal(path)


@pytest.mark.parametrize("name", ["a.npy", "a.nii", "a.nii.gz", "a.h5", "a.zarr"])
def test_garbage_is_refused(tmp_path: Path, name: str) -> None:
    """Catches bytes of no format at all reaching the user as a traceback."""
    path = tmp_path / name
    if path.suffix == ".zarr":
        path.mkdir()
        (path / "zarr.json").write_text("{")
    else:
        path.write_bytes(b"garbage " * 100)
    assert "damaged or cut short" in refusal(path)


@pytest.mark.parametrize("at", [10, 2000])
def test_damaged_compressed_voxels_are_refused(tmp_path: Path, at: int) -> None:
    """Catches zlib's own error, and wrong voxels taken for right: slices end before the checksum of the file."""
    path = save(tmp_path / "a.nii", complex_values((16, 16, 16)).real)
    packed = bytearray(gzip.compress(path.read_bytes()))
    packed[at] ^= 0xFF
    (tmp_path / "b.nii.gz").write_bytes(packed)
    assert "damaged or cut short" in refusal(tmp_path / "b.nii.gz")


def test_a_full_disk_is_not_called_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a good file blamed for what the system could not do while reading it."""
    path = save(tmp_path / "a.nii.gz", VALUES)
    monkeypatch.setattr(reading.shutil, "copyfileobj", raises(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"), open_array(path):
        pass


class Bomb:
    """Pickled, it makes a folder when it is loaded."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def test_pickles_are_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an input file that runs code: an array of objects, and a bare pickle under the suffix .npy."""
    monkeypatch.chdir(tmp_path)
    np.save("objects.npy", np.array([Bomb(), None], dtype=object), allow_pickle=True)
    assert "holds Python objects" in refusal(tmp_path / "objects.npy")
    np.array([Bomb()], dtype=object).dump("pickle.npy")
    assert "damaged" in refusal(tmp_path / "pickle.npy")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.array(["a", "bc"]), "holds values of dtype"),
        (np.array(["2020-01-01"], dtype="datetime64[D]"), "holds values of dtype"),
        (np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]), "holds values of dtype"),
        (np.zeros(3, dtype=np.longdouble), "holds values of dtype"),
        (np.array(3.0), "a single value"),
        (np.zeros((3, 0)), "holds an empty array"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(tmp_path: Path, array: np.ndarray, word: str) -> None:
    """Catches dtypes and shapes that no transform has, which fail later and less clearly."""
    np.save(tmp_path / "a.npy", array)
    assert word in refusal(tmp_path / "a.npy")


def test_strings_in_hdf5_are_refused(tmp_path: Path) -> None:
    """Catches a text dataset, which h5py gives as Python objects."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["words"] = ["a", "b"]
    assert "strings" in refusal(tmp_path / "a.h5")


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an import error that does not say what to install."""
    path = save(tmp_path / "a.nii", VALUES)
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with (
        pytest.raises(ImportError, match=r'reading NIfTI needs nibabel .* pip install "meshfft\[files\]"'),
        open_array(path),
    ):
        pass


CASES = [
    ((8, 6, 4), PartitionSpec("x", "y", "z"), {"x": 2, "y": 2, "z": 2}),
    ((7, 5, 3), PartitionSpec("x", "y", "z"), {"x": 2, "y": 2, "z": 2}),  # nothing divides
    ((3, 5), PartitionSpec(("x", "y")), {"x": 4, "y": 2}),  # most devices hold padding only
    ((6, 5), PartitionSpec(None, "y"), {"x": 4, "y": 2}),  # every value on four devices
    ((9,), PartitionSpec("x"), {"x": 1}),
]


@pytest.mark.parametrize("suffix", [".npy", ".zarr"])
@pytest.mark.parametrize(("shape", "spec", "sizes"), CASES)
def test_writes_the_logical_array(tmp_path: Path, suffix: str, shape: Any, spec: PartitionSpec, sizes: Any) -> None:
    """Catches padding in the file, shards in the wrong place, and values of replicas written wrongly."""
    array = complex_values(shape)
    path = tmp_path / f"out{suffix}"
    write_array(path, sharded(array, spec, sizes), shape)
    with open_array(path) as source:
        assert source.dtype == np.complex64
        np.testing.assert_array_equal(source[...], array)
    assert os.listdir(tmp_path) == [path.name]


def test_writes_padding_that_lies_anywhere(tmp_path: Path) -> None:
    """Catches positions counted from the stored array where a layout has padding inside it, not at its tail."""
    layout = Layout((10,), ((Cut("x", 2, 5), Cut("y", 2, 3)),))
    stored = np.array([0, 1, 2, 3, 4, -1, 5, 6, 7, 8, 9, -1], dtype=np.float32)
    mesh = jax.make_mesh((2, 2), ("x", "y"), devices=jax.devices()[:4])
    write_array(tmp_path / "a.npy", jax.device_put(stored, NamedSharding(mesh, layout.spec)), layout)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.arange(10))


class Sizes(dict):
    """Stands for a file, and keeps only how much was written where."""

    def __setitem__(self, place: Any, block: np.ndarray) -> None:
        super().__setitem__(len(self), block.size)


def test_writes_each_value_once() -> None:
    """Catches work done for every replica: four devices hold each value here, and one of them writes it."""
    file, spec = Sizes(), PartitionSpec(None, "y")
    array = sharded(VALUES[0], spec, {"x": 4, "y": 2})
    writing._fill(file, array, from_spec((3, 5), {"y": 2}, spec))
    assert sorted(file.values()) == [6, 9]


def test_zarr_chunks_follow_the_shards(tmp_path: Path) -> None:
    """Catches chunks that several devices' blocks share, which have to be read again to be written."""
    write_array(tmp_path / "a.zarr", sharded(complex_values((8, 6)), PartitionSpec("x", "y"), {"x": 4, "y": 2}), (8, 6))
    assert zarr.open_array(tmp_path / "a.zarr").chunks == (2, 3)


@pytest.mark.parametrize(
    ("block", "chunks"),
    [
        ((4, 4), (4, 4)),
        ((1024, 1024, 64), (128, 1024, 64)),
        ((1000, 1024, 64), (125, 1024, 64)),
        ((7, 2**24), (1, 2**23)),
        ((13,), (13,)),
        ((1, 1), (1, 1)),
    ],
)
def test_chunks_are_even_parts_of_at_most_64_mib(block: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    """Catches chunks too large to read a slice from, or that do not divide the block."""
    assert writing._chunks(block, 8) == chunks


def test_existing_output_is_refused_or_replaced(tmp_path: Path) -> None:
    """Catches an output lost without leave, and one that cannot be replaced with it."""
    array = sharded(VALUES[0], PartitionSpec("x"), {"x": 3})
    for name in ("a.npy", "a.zarr"):
        save(tmp_path / name, np.zeros(4))
        for refused in (lambda path: write_array(path, array, (3, 5)), lambda path: check_output(path, False, 0)):
            with pytest.raises(FileExistsError, match="overwrite it, or name another"):
                refused(tmp_path / name)
        write_array(tmp_path / name, array, (3, 5), overwrite=True)
        with open_array(tmp_path / name) as source:
            np.testing.assert_array_equal(source[...], VALUES[0])
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "a.zarr"]


def test_overwrite_spares_what_is_no_output(tmp_path: Path) -> None:
    """Catches a folder of somebody's work deleted because its name ends in .zarr, and a file taken for a folder."""
    (tmp_path / "work.zarr").mkdir()
    (tmp_path / "work.zarr" / "thesis.txt").write_text("precious")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file.zarr").write_text("precious")
    for name in ("work.zarr", "folder.npy", "file.zarr"):
        with pytest.raises(ValueError, match="name another"):
            check_output(tmp_path / name, True, 0)
    assert (tmp_path / "work.zarr" / "thesis.txt").exists()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """Catches a symbolic link replaced by a file while what it points to stays old."""
    save(tmp_path / "real.npy", np.zeros(4))
    (tmp_path / "link.npy").symlink_to("real.npy")
    write_array(tmp_path / "link.npy", sharded(VALUES[0], PartitionSpec("x"), {"x": 3}), (3, 5), overwrite=True)
    assert (tmp_path / "link.npy").is_symlink()
    np.testing.assert_array_equal(np.load(tmp_path / "real.npy"), VALUES[0])


def test_outputs_that_cannot_be_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a wrong suffix, a missing folder and a full disk found out only after hours of computing."""
    with pytest.raises(ValueError, match=r"\.npy or \.zarr"):
        check_output(tmp_path / "a.h5", False, 0)
    with pytest.raises(FileNotFoundError, match="make it first"):
        check_output(tmp_path / "no" / "a.npy", False, 0)
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    check_output(tmp_path / "a.npy", False, 10**9)
    with pytest.raises(OSError, match=r"takes 2 GB and .* has 1 GB free"):
        check_output(tmp_path / "a.npy", False, 2 * 10**9)


def test_a_folder_without_leave_to_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a read-only folder found out after computing (simulated: root may write anywhere)."""
    monkeypatch.setattr(writing.os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="not writable"):
        check_output(tmp_path / "a.npy", False, 0)


def test_a_shape_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Catches an array cropped to a shape that is not its own."""
    with pytest.raises(ValueError, match="give its logical shape"):
        write_array(tmp_path / "a.npy", sharded(VALUES[0], PartitionSpec("x"), {"x": 3}), (3, 4))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("name", ["a.npy", "a.zarr"])
def test_whatever_fails_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: Any
) -> None:
    """Catches a half-written file, a temporary left behind, and an old output lost when its successor fails."""
    save(tmp_path / name, VALUES)
    monkeypatch.setattr(atomic, "_sync", raises(fault))
    with pytest.raises(type(fault)):
        write_array(tmp_path / name, sharded(VALUES[0], PartitionSpec("x"), {"x": 3}), (3, 5), overwrite=True)
    with open_array(tmp_path / name) as source:
        np.testing.assert_array_equal(source[...], VALUES)
    assert os.listdir(tmp_path) == [name]


def test_room_is_taken_before_it_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a mapped file without its blocks on the disk: when that fills up, the process dies of a bus error."""
    monkeypatch.setattr(writing.os, "posix_fallocate", raises(OSError(28, "No space left on device")), raising=False)
    with pytest.raises(OSError, match="No space left"):
        write_array(tmp_path / "a.npy", sharded(VALUES[0], PartitionSpec("x"), {"x": 3}), (3, 5))
    assert os.listdir(tmp_path) == []


def test_a_store_survives_a_failed_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the old folder moved aside and not back when the new one cannot take its place."""
    save(tmp_path / "a.zarr", VALUES)
    rename = os.rename

    def fail_on_new(source: Path, target: Path) -> None:
        check(not source.name.endswith(".partial"), "no", OSError)
        rename(source, target)

    monkeypatch.setattr(atomic.os, "rename", fail_on_new)
    with pytest.raises(OSError, match="no"):
        write_array(tmp_path / "a.zarr", sharded(VALUES[0], PartitionSpec("x"), {"x": 3}), (3, 5), overwrite=True)
    with open_array(tmp_path / "a.zarr") as source:
        np.testing.assert_array_equal(source[...], VALUES)
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_an_output_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    """Catches two runs with one output: the second to finish must not replace what the first wrote."""
    with pytest.raises(FileExistsError), atomic.replacing(tmp_path / "a.npy") as temporary:
        temporary.write_text("second")
        (tmp_path / "a.npy").write_text("first")
    assert (tmp_path / "a.npy").read_text() == "first"
    assert os.listdir(tmp_path) == ["a.npy"]


FULL_DISK = """
import os, resource, sys
import jax.numpy as jnp
from meshfft.files import write_array
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_array(sys.argv[1], jnp.ones((64, 1024)), (64, 1024))
except OSError as error:
    print(type(error).__name__, os.listdir())
"""


@pytest.mark.parametrize("name", ["a.npy", "a.zarr"])
def test_a_write_that_really_fails(tmp_path: Path, name: str) -> None:
    """Catches a mapped file that kills the process with a bus error, or a temporary left, when the disk is full."""
    path = os.pathsep.join([str(Path(writing.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-c", FULL_DISK, name]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert run.stdout.strip() == "OSError []", run.stderr
