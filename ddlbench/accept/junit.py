"""An acceptance as JUnit XML, as Jenkins and GitLab read it: a test case for each node, pair and group."""

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from ddlbench.accept.judge import Check
from ddlbench.accept.record import Report
from ddlbench.accept.tables import WHATS, value_text, why

SCOPES = ("node", "pair", "group")


def dumps(report: Report) -> str:
    """Return the text of the file."""
    suites = [_suite(report, scope) for scope in SCOPES]
    top = ET.Element("testsuites", {"name": "ddlbench accept", "time": f"{report.seconds:.3f}", **_sums(suites)})
    top.extend(suites)
    ET.indent(top)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(top, encoding="unicode")}\n'


def _sums(suites: list[ET.Element]) -> dict[str, str]:
    names = ("tests", "failures", "errors", "skipped")
    return {name: str(sum(int(suite.get(name, "0")) for suite in suites)) for name in names}


def _suite(report: Report, scope: str) -> ET.Element:
    cases = [_case(report, scope, name, *subject) for name, subject in _named(report, scope)]
    kinds = [child.tag for case in cases for child in case]
    return _filled(
        ET.Element(
            "testsuite",
            name=f"accept.{scope}",
            tests=str(len(cases)),
            failures=str(kinds.count("failure")),
            errors="0",
            skipped=str(kinds.count("skipped")),
            time=f"{report.seconds / len(SCOPES):.3f}",
            timestamp=report.created[:19],
            hostname=_clean(report.hosts[0]),
        ),
        cases,
    )


def _filled(element: ET.Element, children: list[ET.Element]) -> ET.Element:
    element.extend(children)
    return element


def _named(report: Report, scope: str) -> Iterator[tuple[str, tuple[tuple[int, ...], list[Check]]]]:
    """Yield a name and the checks of each node, pair or group; of a group that was measured again, together."""
    found: dict[tuple[int, ...], list[Check]] = {}
    for check in report.outcome.checks:
        if check.scope == scope:
            found.setdefault(check.nodes, []).append(check)
    for at, (nodes, checks) in enumerate(found.items(), 1):
        # Of many nodes only some are named, so groups have numbers.
        number = f"{at}: {len(nodes)} nodes: " if scope == "group" else ""
        yield _clean(number + report.named(nodes)), (nodes, checks)


def _case(report: Report, scope: str, name: str, nodes: tuple[int, ...], checks: list[Check]) -> ET.Element:
    case = ET.Element("testcase", classname=f"accept.{scope}", name=name, time="0")
    failed = [check for check in checks if check.failed]
    spoils = scope == "node" and nodes[0] in report.outcome.spoilers
    if failed or spoils:
        reasons = [*map(why, failed), *(["makes the group it joins fall short"] if spoils else [])]
        failure = ET.SubElement(case, "failure", message=_clean("; ".join(reasons)), type="slow")
        failure.text = _clean("\n".join(map(_line, checks)))
    elif all(check.status == "unjudged" for check in checks):
        ET.SubElement(case, "skipped", message="there was nothing to compare with")
    return case


def _line(check: Check) -> str:
    figures = (value_text(check, value) or "-" for value in (check.measured, check.expected, check.limit))
    measured, expected, limit = figures
    basis = f" ({check.basis})" if check.basis else ""
    return f"{check.status}: {WHATS[check.what]}: measured {measured}, expected {expected}{basis}, limit {limit}"


def _clean(text: str) -> str:
    """Return `text` without signs that XML cannot have."""
    return "".join(sign if sign.isprintable() or sign == "\n" else " " for sign in text)
