"""Compiled programs that the command line keeps: where, for whom, and that a second process compiles nothing."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from commands import call, fresh, refused

import meshfft
from meshfft.cli.app import QUIET, VARIABLE

NEWER = pytest.mark.skipif(jax.__version_info__ < QUIET, reason="needs JAX 0.10.2: before, none are kept unasked")
COMMAND = """
import sys, jax
seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event.rpartition("/")[2]))
from meshfft.cli.app import app
app(sys.argv[1:], standalone_mode=False)
print("hits", seen.count("cache_hits"), "misses", seen.count("cache_misses"))
"""
Settings = dict[str, Any]
UPDATE = jax.config.update


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Records JAX's settings instead of changing them; private home and cache folders."""
    found: Settings = {}
    monkeypatch.setattr(jax.config, "update", lambda name, value: found.update({name: value}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.delenv(VARIABLE)
    monkeypatch.chdir(tmp_path)
    return found


@NEWER
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_the_users_own_folder_unless_another_is_named(settings: Settings, tmp_path: Path) -> None:
    """Catches a cache elsewhere than the user's, one that others can write, and small programs that it leaves out."""
    call("info")
    folder = Path(settings["jax_compilation_cache_dir"])
    assert folder.parent == tmp_path / "caches/meshfft" and folder.stat().st_mode & 0o777 == 0o700
    assert settings["jax_persistent_cache_min_compile_time_secs"] == 0
    call("--cache", "here", "info")
    assert settings["jax_compilation_cache_dir"] == str(tmp_path / "here")


@pytest.mark.parametrize("said", [lambda m: m.setenv(VARIABLE, "off"), lambda m: None])
def test_it_can_be_turned_off(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[[Any], None]
) -> None:
    """Catches a flag, or a variable, that is not heard, and a folder made nevertheless."""
    said(monkeypatch)
    call(*([] if os.environ.get(VARIABLE) else ["--cache", "off"]), "info")
    assert settings == {"jax_enable_compilation_cache": False} and not list(tmp_path.iterdir())


def test_what_jax_was_told_stays(settings: Settings) -> None:
    """Catches JAX_COMPILATION_CACHE_DIR overruled by a default of ours."""
    UPDATE("jax_compilation_cache_dir", "/elsewhere")
    try:
        call("info")
    finally:
        UPDATE("jax_compilation_cache_dir", None)
    assert not settings


@pytest.mark.parametrize("name", ["a file", "a file/below"])
def test_a_folder_that_cannot_be_written(settings: Settings, tmp_path: Path, name: str) -> None:
    """Catches a named folder that is silently left out, and a command that stops because the default cannot be had."""
    (tmp_path / "a file").touch()
    assert f"--cache {name}" in refused("--cache", name, "info")
    (tmp_path / "caches").touch()
    call("info")
    assert not settings


def test_one_line_of_python_keeps_programs(settings: Settings, tmp_path: Path) -> None:
    """Catches `mf.cache` that reads the environment, leaves small programs out, or takes a folder it cannot write."""
    assert meshfft.cache(tmp_path / "kept") == tmp_path / "kept"
    assert settings["jax_compilation_cache_dir"] == str(tmp_path / "kept")
    assert settings["jax_persistent_cache_min_compile_time_secs"] == 0
    (tmp_path / "a file").touch()
    with pytest.raises(ValueError, match="a file cannot be written by this user alone: name another"):
        meshfft.cache(tmp_path / "a file")
    for none, kind, words in (
        ("", ValueError, "names none: give a path"),
        ("a\0b", ValueError, "names none: give a path"),
        (3, TypeError, "folder is 3: give a path"),
        (b"x", TypeError, "folder is b'x': give a path"),
    ):
        with pytest.raises(kind, match=words):
            meshfft.cache(none)  # type: ignore[arg-type]


def test_a_tilde_is_the_home_directory(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a folder that is named ~."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert meshfft.cache("~/kept") == tmp_path / "kept"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other folders")
def test_the_default_is_under_home(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a default elsewhere than under ~/.cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert meshfft.cache().parent == tmp_path / ".cache/meshfft"


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """Catches keys that change from process to process, and a command that starts JAX before the cache is there."""
    environment = {**fresh(), VARIABLE: str(tmp_path / "kept")}
    np.save(tmp_path / "f.npy", np.ones((16, 16, 16), np.complex64))
    words = ["transform", "f.npy", "o.npy", "--overwrite", "--mesh", "2,2,2"]
    runs, files = [], []
    for _ in "ab":
        made = [sys.executable, "-c", COMMAND, *words]
        done = subprocess.run(made, capture_output=True, text=True, env=environment, cwd=tmp_path, check=True)
        runs.append(done.stdout.split()[-4:])
        files.append({file.name: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir()})
    assert runs[0][1] == "0" and int(runs[0][3]) >= 3
    assert runs[1] == ["hits", runs[0][3], "misses", "0"]
    assert files[0] == files[1] and len(files[0]) == int(runs[0][3])
