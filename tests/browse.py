"""A page in a real browser: headless Chromium opens it from file://, and a script in a copy reports what it finds."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]

IN_BROWSER = [
    pytest.mark.skipif(CHROMIUM is None, reason=f"no browser: none of {', '.join(NAMES)} is on PATH"),
    pytest.mark.timeout(120),
]
"""Marks of tests that open a page."""

# Before the page's own scripts: errors are kept. After them: the probe runs and its value goes to the frame around the
# page. The frame is there because a window of Chromium is never narrower than 500 pixels.
WATCH = "<script>window.faults = []; addEventListener('error', (event) => faults.push(event.message));</script>"
REPORT = """<script>addEventListener("load", () => setTimeout(() => {
  let found;
  try { found = (() => { PROBE })(); } catch (error) { faults.push(String(error)); }
  parent.postMessage(JSON.stringify({ found, faults }), "*");
}, 500));</script></body>"""
FRAME = """<!doctype html><body style="margin:0"><pre id="found"></pre><script>
addEventListener("message", (event) => { document.getElementById("found").textContent = event.data; });
</script><iframe src="SOURCE" style="border:0;width:WIDTHpx;height:900px"></iframe></body>"""
OPEN = """
  const find = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const shown = (element) => Boolean(element) && element.getClientRects().length > 0;
  const text = (selector) => document.querySelector(selector)?.textContent.replace(/\\s+/g, " ").trim();
  const rows = (selector) => document.querySelectorAll(`${selector} tbody tr`).length;
  const press = (plot, key) => plot.dispatchEvent(new KeyboardEvent("keydown", { key }));
  const choose = (id, value) => {
    const menu = document.getElementById(id);
    menu.value = value;
    menu.dispatchEvent(new Event("change"));
  };
  const point = (area, at) => {
    const kinds = ["mouseover", "mousemove", "mousedown", "mouseup", "click"];
    for (const kind of kinds) area.dispatchEvent(new MouseEvent(kind, { bubbles: true, ...at }));
  };
  const traces = (name) => document.querySelector(`#${name} .plot`).data?.length ?? 0;
"""

BUDGETS_MS = (5_000, 20_000, 60_000)
"""Chromium's own time for a page; on a busy machine it may run out before the page says anything: once more then."""


def _dumped(frame: Path, flags: list[str]) -> tuple[re.Match[str] | None, str]:
    """Open `frame` and return what the page in it said, and what Chromium wrote."""
    profile = frame.parent / "profile"
    command = [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={profile}", "--window-size=1700,1000", "--dump-dom"]
    done = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=90, check=False)
    shutil.rmtree(profile, ignore_errors=True)
    return re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL), done.stderr[-2000:]


def look(page: Path, probe: str, *flags: str, width: int = 1280) -> Any:
    """Return the value of the JavaScript `probe` in the page; faults of the page fail the test."""
    source = page.read_text().replace("<head>", f"<head>{WATCH}", 1)
    start, end = source.rsplit("</body>", 1)
    copy = page.with_suffix(".probe.html")
    copy.write_text(start + REPORT.replace("PROBE", OPEN + probe) + end)
    frame = page.with_suffix(".frame.html")
    frame.write_text(FRAME.replace("SOURCE", copy.name).replace("WIDTH", str(width)))
    for budget in BUDGETS_MS:
        found, said = _dumped(frame, [*flags, f"--virtual-time-budget={budget}"])
        if found:
            break
    assert found, f"the page said nothing: {said}"
    answer = json.loads(html.unescape(found[1]))
    assert answer["faults"] == []
    return answer["found"]
