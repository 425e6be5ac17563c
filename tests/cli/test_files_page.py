"""docs/files.md: the shown output is the present one, and the named tests exist."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commands import call
from typer.testing import CliRunner

from meshfft.cli.app import app

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/files.md").read_text()
BLOCKS = PAGE.split("```\n")


def table(first: str) -> list[str]:
    """Rows of a table without its head, found by the first cell."""
    lines = PAGE[PAGE.index(f"| {first} |") :].splitlines()
    return lines[: next(n for n, line in enumerate(lines) if not line.startswith("|"))]


def test_the_page_has_the_passes_that_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a page with other passes, columns or numbers than the command plans now: all of them are modelled."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = next(block for block in BLOCKS if block.startswith("$ meshfft transform"))
    command, printed = shown.split("\n", 1)
    assert command.split()[5:] == ["--mesh", "8", "--memory", "1GB"]
    assert call("plan", "512,1024,1024", *command.split()[5:]) == printed


def test_the_page_has_the_lines_that_a_log_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a log with other fields than on the page."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((8, 6), "f4"))
    said = CliRunner().invoke(app, ["transform", "a.npy", "b.npy", "--mesh", "2", "--log-json"]).stderr
    ends = [json.loads(line) for line in said.splitlines() if '"event": "end"' in line]
    shown = json.loads(next(block for block in BLOCKS if block.startswith('{"event"')))
    assert ends and all([*end] == [*shown] for end in ends)


def test_the_tests_that_the_page_names_are_there() -> None:
    """Catches a fault on the page that no test checks."""
    text, named = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}, 0
    for row in table("fault")[2:]:
        words = re.findall(r"`([^`]*)`", row.rsplit(" | ", 1)[1])
        files = ["test_faults.py", *(word for word in words if word in text)]
        for word in words:
            if word in text:
                continue
            name, named = word.split("[")[0], named + 1
            assert any(re.search(rf"def test_\w*{name}", text[file]) for file in files), f"{word} of {files}"
    assert named > 50
