"""docs/paper.md: every path, test and name that its tables point to; and the numbers of rows, in all pages."""

import re
from pathlib import Path

import pytest

import meshfft as mf
from benchmarks.pages.marks import MARK, RESULTS, Quotes, marked_pages, quotes, remade

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


@pytest.fixture(scope="module")
def found() -> Quotes:
    return quotes(RESULTS)


@pytest.mark.parametrize("path", marked_pages(), ids=lambda path: path.name)
def test_pages_have_the_numbers_of_the_rows(path: Path, found: Quotes) -> None:
    """Catches a number that differs from its row: `python -m benchmarks pages` mends it, and prints what changed."""
    assert remade(path.read_text(), found) == path.read_text()


def test_no_modelled_number_of_section_v_is_typed() -> None:
    """Catches a number of the model without a mark, which no row would correct."""
    section = PAGE[PAGE.index("\n## Its statements about time") : PAGE.index("\n## The authors' program")]
    ours = re.findall(r"^\|[^|]*\|(.*)\|$", MARK.sub("", section), re.MULTILINE)
    assert len(ours) > 20 and not re.findall(r"\d\.\d.*", "\n".join(ours))


def test_one_quantity_has_one_number(found: Quotes) -> None:
    """Catches rows of the model and of compiled programs that are of commits with different plans."""
    planned = found.series["FFT meshfft"].numbers["8192"]
    assert found.series["pod plan"].numbers["8192@2048-natural"] == pytest.approx(planned, rel=1e-6)


def test_marks_name_rows(found: Quotes) -> None:
    """Catches a mark of no row that keeps an old number, and a quotient the wrong way round."""
    assert float(found.text("kdft-2d its products 2/128")) == pytest.approx(64, rel=0.01)
    for name in ("FFT own 100", "FFT natural own", "table of nothing"):
        with pytest.raises(ValueError, match="the rows have no"):
            remade(f"<!--={name}-->1<!--/-->", found)
