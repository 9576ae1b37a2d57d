"""An acceptance as a page: the verdict first, then every figure, in one file that opens anywhere."""

from ddlbench.accept.record import Report
from ddlbench.accept.tables import table, verdict
from ddlbench.report.html import environment, part
from ddlbench.report.units import counted


def render(report: Report) -> str:
    """Return the page as HTML; every text is escaped."""
    first, *lines = verdict(report)
    figures = table(report, None)
    return (
        environment()
        .get_template("accept.html")
        .render(
            program=report.program,
            date=report.created,
            passed=report.passed,
            first=first.partition(": ")[2],
            lines=lines,
            facts=_facts(report),
            warnings=report.warnings,
            table=figures,
            style=part("style.css"),
        )
    )


def _facts(report: Report) -> list[tuple[str, str]]:
    ranks = sum(report.slots)
    return [
        ("Where", f"{counted(len(report.hosts), 'node')}, {counted(ranks, 'rank')}"),
        ("Expected from", report.against),
        ("Took", f"{report.seconds:.0f} s"),
        ("When", report.created),
    ]
