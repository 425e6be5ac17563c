"""docs/paper.md: every path, test and name that its tables point to, and numbers only by marks."""

import re
from pathlib import Path

import meshfft as mf
from benchmarks.tables.marks import MARK

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "paper.md").read_text()


def test_everything_it_points_to_is_there() -> None:
    """Catches a file, a test or a public name that was renamed and is still spoken of."""
    paths = re.findall(r"`([\w/]+(?:\.py|\.md|/))(?:::(\w+))?`", PAGE)
    assert len(paths) > 30
    for path, test in paths:
        file = next((root / path for root in (ROOT, ROOT / "src" / "meshfft") if (root / path).exists()), None)
        assert file is not None, f"there is no {path}"
        assert not test or f"def {test}(" in file.read_text(), f"there is no {test} in {path}"
    for name in re.findall(r"\bmf\.(\w+)", PAGE):
        assert hasattr(mf, name), f"there is no mf.{name}"


def test_no_modelled_number_of_section_v_is_typed() -> None:
    """Catches a number of the model without a mark, which no row would correct."""
    section = PAGE[PAGE.index("\n## Its statements about time") : PAGE.index("\n## The authors' program")]
    ours = re.findall(r"^\|[^|]*\|(.*)\|$", MARK.sub("", section), re.MULTILINE)
    assert len(ours) > 20 and not re.findall(r"\d\.\d.*", "\n".join(ours))
