"""What a reader without a browser finds in a page of a report."""

import html.parser
import json
from collections import Counter
from typing import Any


class Page(html.parser.HTMLParser):
    """The tags, the links, the texts outside scripts and the embedded data of a page, by the id of its script."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.texts: list[str] = []
        self._inside, self._name = "", ""
        self._data: dict[str, str] = {}
        self.feed(source)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        self._inside = tag if tag in ("script", "style") else ""
        self._name = dict(attributes).get("id", "") if tag == "script" else ""
        self.links += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, _):
        self._inside = self._name = ""

    def handle_data(self, data):
        if self._name:
            self._data[self._name] = self._data.get(self._name, "") + data
        elif not self._inside:
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All texts, with plain blanks."""
        return "".join(self.texts).replace("\u00a0", " ")

    def data(self, name: str = "data") -> Any:
        """The value of the JSON that the script `name` holds."""
        return json.loads(self._data[name])
