"""Text between two marker lines of a Markdown file: <!-- NAME --> and <!-- /NAME -->."""

import pathlib


def replace(path, name, text):
    """Puts `text` between the markers. ValueError, and the file as it was, unless both are there once and in order."""
    path = pathlib.Path(path)
    page = path.read_text()
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"{path} needs one line {begin} and after it one line {end}")
    head, rest = page.split(begin)
    path.write_text(f"{head}{begin}\n{text.strip()}\n{end}{rest.split(end)[1]}")
