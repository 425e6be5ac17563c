"""What mkdocs calls while it builds the site: made pages, links to files that the site does not have, formulas."""

import html
import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent.parent
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pages  # noqa: E402
from formulas import mathml  # noqa: E402

# A link of words or code, except to pictures; and code, which stays unchanged.
LINK = re.compile(r"^( *)```.*?^\1```|`[^`\n]+`|(?<!!)\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(?<!</span>)<code>([^<]+)</code>")  # in text, not in blocks
MARK = re.compile(r"<!--[=/].*?-->")  # of numbers that are made
CELL = re.compile(r"<td>(?=[\d.][^<]{0,25}</td>)")  # numbers
MATH = re.compile(r'<(span|div) class="arithmatex">\\[([](.*?)\\[)\]]</\1>', re.DOTALL)


ALONE = ("index.md", "quickstart.md")
MADE = {"Tutorials": pages.tutorials, "Reference": pages.reference, "Rows": pages.measurements}


def on_config(config: Any) -> Any:
    """Makes pages, and puts them where the navigation is empty."""
    sys.path.append(str(ROOT))  # where `benchmarks` is
    made = {title: dict(make()) for title, make in MADE.items()}
    _fill(config.nav, made)
    config.extra["made"] = {
        "index.md": pages.start(),
        **{path: text for one in made.values() for path, text in one.items()},
    }
    return config


def _fill(entries: list[Any], made: dict[str, dict[str, str]]) -> None:
    for entry in entries:
        for title, inner in entry.items() if isinstance(entry, dict) else ():
            if inner == []:
                entry[title] = [
                    path if path.endswith("index.md") else {_name(text): path} for path, text in made[title].items()
                ]
            elif isinstance(inner, list):
                _fill(inner, made)


def _name(text: str) -> str:
    """What the navigation calls a page: its title, of one with a colon the word before it."""
    return next(line for line in text.splitlines() if line.startswith("# "))[2:].split(":")[0]


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that were made."""
    for path, text in config.extra.pop("made").items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    """Names files of the repository that are no page, where a clone would have a link."""
    folder = PurePosixPath(page.file.src_uri).parent
    if page.file.src_uri in ALONE:
        page.meta["hide"] = ["navigation"]  # of its section it is the only page: lines of code have the room

    def named(link: re.Match[str]) -> str:
        if link[2] is None:
            return link[0]
        path = os.path.normpath(folder / link[3])
        one = PurePosixPath(path)
        stem = one.parent.name if one.stem == "README" else one.stem
        made = f"tutorials/{stem}.md" if path.startswith("../examples/") else path
        target = files.get_file_from_path(made)
        if target is None:
            return link[2]
        text = _title(target) if link[2].endswith(".md") else link[2]
        return f"[{text}]({os.path.relpath(made, folder)}{link[4] or ''})"

    return LINK.sub(named, markdown)


def _title(file: File) -> str:
    """What a page is called, where a link has only the name of its file."""
    return next(line for line in file.content_string.splitlines() if line.startswith("# "))[2:]


def on_page_content(html_text: str, **_: Any) -> str:
    """Draws formulas, and breaks lines where a reader would: paths after a slash, options and numbers nowhere."""
    drawn = MATH.sub(lambda one: mathml(html.unescape(one[2]), block=one[1] == "div"), MARK.sub("", html_text))
    return CODE.sub(lambda one: _code(one[1]), CELL.sub('<td class="short">', drawn))


def _code(text: str) -> str:
    if len(text) < 25:
        return f'<code class="short">{text}</code>'
    return "<code>" + re.sub(r"/|::|_", r"\g<0><wbr>", text) + "</code>"
