"""Sharded arrays written shard by shard: whole and in place, or nothing at all."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from array_files import VALUES, complex_values, raises, save, sharded, zarr
from commands import python
from jax.sharding import NamedSharding, PartitionSpec

from meshfft import atomic
from meshfft.io import check_disjoint, check_output, flat, open_array, write_array, writing
from meshfft.io.source import FORMATS
from meshfft.layout.layout import Cut, Layout
from meshfft.layout.padded_array import PaddedArray

CASES = [
    ((8, 6, 4), PartitionSpec("x", "y", "z"), {"x": 2, "y": 2, "z": 2}),
    ((7, 5, 3), PartitionSpec("x", "y", "z"), {"x": 2, "y": 2, "z": 2}),  # nothing divides
    ((3, 5), PartitionSpec(("x", "y")), {"x": 4, "y": 2}),  # most devices hold padding only
    ((6, 5), PartitionSpec(None, "y"), {"x": 4, "y": 2}),  # every value on four devices
    ((9,), PartitionSpec("x"), {"x": 1}),
]


@pytest.mark.parametrize("suffix", [".npy", ".zarr", ".h5", ".nc", ".nii.gz"])
@pytest.mark.parametrize(("shape", "spec", "sizes"), CASES)
def test_writes_the_logical_array(tmp_path: Path, suffix: str, shape: Any, spec: PartitionSpec, sizes: Any) -> None:
    """Catches padding in the file, shards in the wrong place, and values of replicas written wrongly."""
    array = complex_values(shape)
    path = tmp_path / f"out{suffix}"
    write_array(path, sharded(array, spec, sizes))
    with open_array(path) as source:
        assert source.dtype == np.complex64
        np.testing.assert_array_equal(source[...], array)
    assert os.listdir(tmp_path) == [path.name]


def test_writes_padding_that_lies_anywhere(tmp_path: Path) -> None:
    """Catches positions counted from the stored array where a layout has padding inside it, not at its tail."""
    layout = Layout((10,), ((Cut("x", 2, 5), Cut("y", 2, 3)),))
    stored = np.array([0, 1, 2, 3, 4, -1, 5, 6, 7, 8, 9, -1], dtype=np.float32)
    mesh = jax.make_mesh((2, 2), ("x", "y"), devices=jax.devices()[:4])
    array = PaddedArray(jax.device_put(stored, NamedSharding(mesh, layout.spec)), layout, mesh)
    write_array(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.arange(10))


def test_writes_each_value_once(tmp_path: Path) -> None:
    """Catches work done for every replica: four devices hold each value here, and one of them writes it."""
    wrote, spec = [], PartitionSpec(None, "y")

    def write(_: Any, __: Any, block: np.ndarray) -> None:
        wrote.append(block.size)

    with mock.patch.object(flat.FlatSink, "write", write):
        write_array(tmp_path / "a.npy", sharded(VALUES[0], spec, {"x": 4, "y": 2}))
    assert sorted(wrote) == [6, 9]


def test_zarr_chunks_follow_the_shards(tmp_path: Path) -> None:
    """Catches chunks that several devices' blocks share, which have to be read again to be written."""
    write_array(tmp_path / "a.zarr", sharded(complex_values((8, 6)), PartitionSpec("x", "y"), {"x": 4, "y": 2}))
    assert zarr.open_group(tmp_path / "a.zarr", mode="r")["data"].chunks == (2, 3)


def test_existing_output_is_refused_or_replaced(tmp_path: Path) -> None:
    """Catches an output lost without leave, and one that cannot be replaced with it."""
    array = sharded(VALUES[0], PartitionSpec("x"), {"x": 3})
    for name in ("a.h5", "a.nii.gz", "a.npy", "a.zarr"):
        save(tmp_path / name, np.zeros(4))
        for refused in (lambda path: write_array(path, array), lambda path: check_output(path, False, 0, [*FORMATS])):
            with pytest.raises(FileExistsError, match="overwrite it, or name another"):
                refused(tmp_path / name)
        write_array(tmp_path / name, array, overwrite=True)
        with open_array(tmp_path / name) as source:
            np.testing.assert_array_equal(source[...], VALUES[0])
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "a.nii.gz", "a.npy", "a.zarr"]


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
    """Catches a symbolic link replaced by a file, while its target stays old."""
    save(tmp_path / "real.npy", np.zeros(4))
    (tmp_path / "link.npy").symlink_to("real.npy")
    write_array(tmp_path / "link.npy", sharded(VALUES[0], PartitionSpec("x"), {"x": 3}), overwrite=True)
    assert (tmp_path / "link.npy").is_symlink()
    np.testing.assert_array_equal(np.load(tmp_path / "real.npy"), VALUES[0])


def test_links_that_lead_nowhere_are_no_free_names(tmp_path: Path) -> None:
    """Catches a file made where a dangling link leads, without leave; and a link to itself followed."""
    (tmp_path / "link.npy").symlink_to("elsewhere.npy")
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    array = sharded(VALUES[0], PartitionSpec("x"), {"x": 3})
    for refused in (lambda path: write_array(path, array), lambda path: check_output(path, False, 0)):
        with pytest.raises(FileExistsError, match=r"link\.npy is a link to .*elsewhere\.npy, which does not exist"):
            refused(tmp_path / "link.npy")
    assert not (tmp_path / "elsewhere.npy").exists()
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="leads back to itself"):
            check_output(tmp_path / "loop.npy", overwrite, 0)
    write_array(tmp_path / "link.npy", array, overwrite=True)
    np.testing.assert_array_equal(np.load(tmp_path / "elsewhere.npy"), VALUES[0])


@pytest.mark.parametrize("name", ["a\\b.zarr", "\udcff.zarr"])
def test_names_that_mean_another_store_are_refused(tmp_path: Path, name: str) -> None:
    """Catches a store made in the folder `a` for the name `a\\b`, as on Windows, where it stays when all else fails."""
    with pytest.raises(ValueError, match="in its name: rename it, or its folder"):
        write_array(tmp_path / name, jax.numpy.ones((4, 4)))
    assert list(tmp_path.iterdir()) == []
    write_array(tmp_path / "plain.zarr", jax.numpy.ones((4, 4)))
    (tmp_path / "plain.zarr").rename(tmp_path / name)
    with pytest.raises(ValueError, match="in its name: rename it"), open_array(tmp_path / name):
        pass


def test_an_output_apart_from_its_input(tmp_path: Path) -> None:
    """Catches an output put inside the store that is read, an input inside the output that would replace it, and one
    file under one name or two, which may hold more than the array that is read."""
    store = save(tmp_path / "in.zarr", VALUES)
    inner = save(store / "in.npy", VALUES)
    plain = save(tmp_path / "a.npy", VALUES)
    os.link(plain, tmp_path / "hard.npy")
    (tmp_path / "soft.npy").symlink_to("a.npy")
    (tmp_path / "same").symlink_to(".")
    for source, target, word in (
        (store, store / "out.zarr", "lies inside"),
        (store, tmp_path / "same" / "in.zarr" / "c" / "out.npy", "lies inside"),
        (inner, store, "which is read, lies inside"),
        (plain, plain, "which is read: write elsewhere"),
        (plain, tmp_path / "hard.npy", "by another name"),
        (plain, tmp_path / "soft.npy", "by another name"),
        (store, tmp_path / "same" / "in.zarr", "by another name"),
    ):
        with pytest.raises(ValueError, match=word) as caught:
            check_disjoint(source, target)
        assert target.name in str(caught.value) and source.name in str(caught.value)
    for target in (tmp_path / "b.npy", tmp_path / "in.zarr.zarr", tmp_path / "out.zarr"):
        check_disjoint(plain, target)


def test_outputs_that_cannot_be_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a wrong suffix, a missing folder and a full disk found out only after hours of computing."""
    with pytest.raises(ValueError, match=r"\.npy or \.h5"):
        check_output(tmp_path / "a.tif", False, 0)
    with pytest.raises(FileNotFoundError, match="make it first"):
        check_output(tmp_path / "no" / "a.npy", False, 0)
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    check_output(tmp_path / "a.npy", False, 10**9)
    for name, nbytes in (("a.npy", 2 * 10**9), ("a.nii.gz", 10**9)):  # which is packed from a file beside it
        with pytest.raises(OSError, match=r"takes 2 GB and .* has 1 GB free"):
            check_output(tmp_path / name, False, nbytes, [*FORMATS])


def test_a_folder_without_leave_to_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a read-only folder found out after computing (simulated: root may write anywhere)."""
    monkeypatch.setattr(writing.os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="not writable"):
        check_output(tmp_path / "a.npy", False, 0)


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.h5", "a.nii.gz"])
def test_whatever_fails_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fault: Any
) -> None:
    """Catches a half-written file, a temporary left behind, and an old output lost when its successor fails."""
    save(tmp_path / name, VALUES)
    monkeypatch.setattr(atomic, "_sync", raises(fault))
    with pytest.raises(type(fault)):
        write_array(tmp_path / name, sharded(VALUES[0], PartitionSpec("x"), {"x": 3}), overwrite=True)
    with open_array(tmp_path / name) as source:
        np.testing.assert_array_equal(source[...], VALUES)
    assert os.listdir(tmp_path) == [name]


def test_room_is_taken_before_it_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a disk found full only when hours of computing are to be written to it."""
    monkeypatch.setattr(flat.os, "posix_fallocate", raises(OSError(28, "No space left on device")), raising=False)
    with pytest.raises(OSError, match="No space left"):
        write_array(tmp_path / "a.npy", sharded(VALUES[0], PartitionSpec("x"), {"x": 3}))
    assert os.listdir(tmp_path) == []


def test_a_store_survives_a_failed_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the old folder moved aside and not back when the new one cannot take its place."""
    save(tmp_path / "a.zarr", VALUES)
    rename = os.rename

    def fail_on_new(source: Path, target: Path) -> None:
        if source.name.endswith(".partial"):
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(atomic.os, "rename", fail_on_new)
    with pytest.raises(OSError, match="no"):
        write_array(tmp_path / "a.zarr", sharded(VALUES[0], PartitionSpec("x"), {"x": 3}), overwrite=True)
    with open_array(tmp_path / "a.zarr") as source:
        np.testing.assert_array_equal(source[...], VALUES)
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_an_output_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    """Catches two runs with one output: the second to finish must not replace the first result."""
    with pytest.raises(FileExistsError), atomic.replacing(tmp_path / "a.npy") as temporary:
        temporary.write_text("second")
        (tmp_path / "a.npy").write_text("first")
    assert (tmp_path / "a.npy").read_text() == "first"
    assert os.listdir(tmp_path) == ["a.npy"]


FULL_DISK = """
import os, resource, sys
import jax.numpy as jnp
from meshfft.io import write_array
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_array(sys.argv[1], jnp.ones((64, 1024)))
except OSError as error:
    print(type(error).__name__, error.filename, os.listdir())
"""


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.h5", "a.nii.gz"])
def test_a_write_that_really_fails(tmp_path: Path, name: str) -> None:
    """Catches a process killed, an error that is not the system's, or names no file, or a temporary left, when the disk
    is full.
    """
    run = python("-c", FULL_DISK, name, folder=tmp_path)
    assert run.stdout.strip() == f"OSError {name} []", run.stderr


KILLED = """
import os, signal, sys
import jax
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from meshfft.io import write_array
from meshfft.io import flat, zarr
store, blocks = (zarr.ZarrSink if sys.argv[1].endswith("zarr") else flat.FlatSink), []
write = store.write
def killing(self, at, block):
    if blocks:
        os.kill(os.getpid(), signal.SIGKILL)
    blocks.append(write(self, at, block))
store.write = killing
mesh = jax.make_mesh((2,), ("x",))
x = jax.device_put(jnp.ones((4, 4)), NamedSharding(mesh, PartitionSpec("x")))
write_array(sys.argv[1], x, overwrite=True)
"""


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["a.npy", "a.zarr", "a.nii.gz", pytest.param("a.h5", marks=pytest.mark.slow)])
def test_a_killed_process_leaves_no_half_file(tmp_path: Path, name: str) -> None:
    """Catches an output that has its name before it is whole: a process that is killed cannot tidy up."""
    save(tmp_path / name, VALUES)
    run = python("-c", KILLED, name, folder=tmp_path)
    assert run.returncode == -9, run.stderr
    with open_array(tmp_path / name) as source:
        np.testing.assert_array_equal(source[...], VALUES)
    left = [entry for entry in os.listdir(tmp_path) if entry != name]
    assert len(left) == 1 and left[0].startswith(f".{name}.") and left[0].endswith(".partial")
    assert [path.name for path in atomic.unfinished(tmp_path / name)] == left


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_that_is_being_packed_has_no_name_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    """Catches a .nii.gz file that is visible before it is complete, and a leftover of its packing."""
    seen = list[list[str]]()

    def ending(whole: Any, packed: Any, _: int) -> None:
        packed.write(whole.read(100))
        packed.flush()
        seen.append(sorted(os.listdir(tmp_path)))
        raise fault

    with monkeypatch.context() as patch, pytest.raises(type(fault)):
        patch.setattr(writing.shutil, "copyfileobj", ending)
        write_array(tmp_path / "a.nii.gz", sharded(VALUES[0], PartitionSpec("x"), {"x": 3}))
    assert len(seen[0]) == 2 and all(name.startswith(".a.nii.gz.") and name.endswith(".partial") for name in seen[0])
    assert os.listdir(tmp_path) == []


def test_an_affine_that_is_none_is_refused(tmp_path: Path) -> None:
    """Catches voxels without a position, or all in one plane, found out when the image is computed and lost."""
    for affine, words in ((np.eye(3), "is no affine"), (np.diag([1, 1, 0, 1]), "puts all voxels into a plane")):
        with pytest.raises(ValueError, match=words):
            write_array(tmp_path / "a.nii", jax.numpy.ones((4, 4)), affine=affine)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["a.npy", "a.h5", "a.zarr", "a.nii"])
def test_arrays_without_numbers_are_refused_and_a_single_number_is_written(tmp_path: Path, name: str) -> None:
    """Catches a division by zero, and the largest of no dimensions."""
    with pytest.raises(ValueError, match=r"shape \(0, 4\), without numbers: there is nothing to write"):
        write_array(tmp_path / name, jax.numpy.ones((0, 4)))
    assert os.listdir(tmp_path) == []
    write_array(tmp_path / name, jax.numpy.float32(3))
    assert (tmp_path / name).exists()


@pytest.mark.parametrize("dtype", ["?", "f2"])
def test_types_that_a_format_has_not_are_refused(tmp_path: Path, dtype: str) -> None:
    """Catches an error of another package, after the file was begun, for a type that NIfTI has no code for."""
    with pytest.raises(ValueError, match="which NIfTI has not: give int8 or float32"):
        write_array(tmp_path / "a.nii.gz", jax.numpy.ones((4, 4), dtype))
    assert os.listdir(tmp_path) == []
