"""The files of an acceptance: CSV, JUnit XML, page, record, host file, and what the screen says."""

import csv
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from ddlbench.accept import junit, page, record, tables
from ddlbench.accept.expect import Earlier
from ddlbench.accept.judge import Check
from ddlbench.accept.rules import Rules, from_data
from ddlbench.errors import UsageError
from ddlbench.launch import hostfile
from ddlbench.report.plain import plain
from made_cluster import Cluster, report_of

# What the schemas that Jenkins (junit-10.xsd) and GitLab read have in common: attributes, and what may be inside.
SHAPE = {
    "testsuites": ({"name", "time", "tests", "failures", "errors", "skipped"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp", "hostname"},
        {"testcase"},
    ),
    "testcase": ({"name", "classname", "time"}, {"failure", "skipped"}),
    "failure": ({"message", "type"}, set()),
    "skipped": ({"message"}, set()),
}


@pytest.fixture
def failed():
    return report_of(Cluster(4, each=2, link={2: 3.0}))


def check_shape(element):
    attributes, inside = SHAPE[element.tag]
    assert set(element.attrib) == attributes
    assert {child.tag for child in element} <= inside
    for child in element:
        check_shape(child)


def test_junit_has_a_case_for_each_node_pair_and_group_in_the_shape_that_others_read(failed):
    top = ET.fromstring(junit.dumps(failed).encode())
    check_shape(top)
    cases = {name: [case.get("name") for case in top.iterfind(f"testsuite[@name='accept.{name}']/testcase")]
             for name in junit.SCOPES}  # fmt: skip
    assert cases["node"] == ["node0", "node1", "node2", "node3"]
    assert len(cases["pair"]) == 6
    assert [name.split(":")[1] for name in cases["group"]].count(" 3 nodes") == 1
    assert all(len(set(names)) == len(names) for names in cases.values())
    for suite in top:
        assert int(suite.get("tests")) == len(suite.findall("testcase"))
        assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
    assert int(top.get("failures")) == sum(int(suite.get("failures")) for suite in top) == 4
    [bad] = top.findall("testsuite[@name='accept.node']/testcase/failure/..")
    assert bad.get("name") == "node2"
    assert "best pair's bandwidth 3.3" in bad.find("failure").get("message")
    assert "pass: adds vectors" in bad.find("failure").text


def test_junit_names_no_two_groups_alike_however_many_nodes_they_have():
    top = ET.fromstring(junit.dumps(report_of(Cluster(64, spoils=[60]))))
    names = [case.get("name") for case in top.iterfind("testsuite[@name='accept.group']/testcase")]
    assert len(names) == len(set(names)) > 8
    assert max(map(len, names)) < 100


def test_junit_tells_a_spoiler_and_what_was_not_judged():
    top = ET.fromstring(junit.dumps(report_of(Cluster(16, spoils=[9]))))
    [bad] = top.findall("testsuite[@name='accept.node']/testcase/failure/..")
    assert (bad.get("name"), bad.find("failure").get("message")) == ("node9", "makes the group it joins fall short")
    alone = ET.fromstring(junit.dumps(report_of(Cluster(2))))
    assert alone.get("failures") == "0"
    assert int(alone.get("skipped")) > 0


def test_junit_is_xml_whatever_a_host_is_called():
    report = replace(report_of(Cluster(3)), hosts=("a\x1b[1m<b>", 'q"&', "ok"))
    names = [case.get("name") for case in ET.fromstring(junit.dumps(report)).iter("testcase")]
    assert 'q"&' in names
    assert "a [1m<b>" in names


def test_the_csv_has_every_figure_with_what_was_expected_and_why(failed):
    rows = [*csv.DictReader(io.StringIO(tables.csv_text(failed)))]
    assert len(rows) == len(failed.outcome.checks)
    [bad] = [row for row in rows if row["status"] == "fail" and row["scope"] == "node"]
    assert (bad["hosts"], bad["what"], bad["unit"], bad["basis"]) == (
        "node2", "bandwidth", "B/s", "median of 4 nodes' best pairs",
    )  # fmt: skip
    assert float(bad["measured"]) < float(bad["limit"]) < float(bad["expected"])


def test_the_largest_good_group_is_a_host_file_that_launch_reads(failed, tmp_path):
    file = tmp_path / "hosts"
    file.write_text(tables.hostfile(failed))
    assert [(host.name, host.slots) for host in hostfile.read(file)] == [("node0", 2), ("node1", 2), ("node3", 2)]


def test_the_screen_begins_with_what_failed_and_ends_with_the_group(failed):
    lines = tables.verdict(failed)
    assert lines[0] == f"FAIL: 4 nodes, {len(failed.outcome.checks)} figures, 4 too slow"
    assert lines[1].startswith("bad node: node2: best pair's bandwidth 3.3")
    assert "(median of 4 nodes' best pairs)" in lines[1]
    assert lines[-1] == "largest good group: 3 nodes: node0, node1, node3"
    rows = plain(tables.table(failed)).splitlines()
    assert rows[1].split()[:3] == ["fail", "node", "node2"]


def test_a_long_table_is_cut_and_says_so():
    table = tables.table(report_of(Cluster(64)))
    assert len(table.rows) == tables.MOST_ROWS
    assert table.notes[0].endswith("more are in the files.")


def test_every_kind_of_failure_is_told_in_words():
    outcome = Cluster(8, late={1: 0.5}, drops=[2], pairs={(5, 6): 3.0}, spoils=[7], cpu={0: 3.0}).judged()
    text = "\n".join(tables.verdict(report_of(Cluster(8), outcome)))
    for told in (
        "bad node: node0: adds vectors",
        "bad node: node1: its processes do not run for 5",
        "bad node: node2: all its links stall, for 1200 ms at least",
        "bad link: node5, node6: bandwidth",
        "left out for a bad link: node",
        "spoils the group: node7",
    ):
        assert told in text
    stalls = "\n".join(tables.verdict(report_of(Cluster(2, drops=[1]))))
    assert "bad link: node0, node1: stalls for 1200 ms, allowed 250 ms" in stalls
    assert tables.verdict(report_of(Cluster(1, missing=[0])))[-1] == "largest good group: none"


def test_the_page_says_the_verdict_and_escapes_names(failed):
    text = page.render(replace(failed, hosts=("<i>0", "node1", "node2", "node3"), warnings=("Doubt & more",)))
    assert '<h1 class="failed">Fail</h1>' in text
    assert "bad node: node2" in text
    assert "&lt;i&gt;0" in text
    assert "<i>0" not in text
    assert "Doubt &amp; more" in text
    assert text.count("<tr class=") == len(failed.outcome.checks)
    assert '<h1 class="passed">Pass</h1>' in page.render(report_of(Cluster(3)))


def written(report, folder):
    (folder / record.FILE).write_text(record.dumps(report))
    return folder


def test_an_acceptance_can_be_held_against_an_earlier_one(tmp_path):
    data = record.read(written(report_of(Cluster(4)), tmp_path))
    earlier = Earlier(data, ["node0", "node1", "node2", "new"], Rules())
    same, other = earlier.of("reduction", [1]), earlier.of("reduction", [3])
    assert same.basis == "baseline, same host"
    assert other.basis == "baseline, median of 4"
    assert earlier.of("bandwidth", [0, 1]).basis == "baseline, same hosts"
    assert earlier.of("allreduce", [0]) is None
    slower = Cluster(4, cpu=dict.fromkeys(range(4), 2.0)).judged(earlier)
    assert set(slower.bad) == {0, 1, 2, 3}


def test_a_figure_that_failed_is_no_baseline(tmp_path):
    data = record.read(written(report_of(Cluster(4, cpu={2: 3.0})), tmp_path))
    assert Earlier(data, ["node0", "node1", "node2", "node3"], Rules()).of("copy", [2]).basis == "baseline, median of 3"


def test_a_baseline_of_other_sizes_is_refused(tmp_path):
    data = record.read(written(report_of(Cluster(3)), tmp_path))
    with pytest.raises(UsageError, match=r"measured with 1048576 bytes for each pair, this run with 4194304"):
        Earlier(data, ["node0"], from_data({"pair": {"size": "4M"}}))


def test_a_record_names_who_is_bad_and_has_no_nan(tmp_path):
    report = report_of(Cluster(5, missing=[2], pairs={(0, 1): 3.0}))
    data = json.loads(record.dumps(report), parse_constant=pytest.fail)
    assert [one["host"] for one in data["bad"]] == ["node2"]
    assert data["links"] == [["node0", "node1"]]
    assert data["passed"] is False
    assert {check["measured"] for check in data["checks"] if check["note"] == "no figure was measured"} == {None}


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("{", "--baseline {run}: "),
        ("[]", "accept.json is not of format 'ddlbench-acceptance', version 1"),
        ('{"format": "ddlbench-run", "version": 1}', "is not of format 'ddlbench-acceptance'"),
        ('{"format": "ddlbench-acceptance", "version": 1}', "checks or sizes are missing"),
        ('{"format": "ddlbench-acceptance", "version": 1, "sizes": {}, "checks": [3]}', "check 0 has no readable what"),
        (
            '{"format": "ddlbench-acceptance", "version": 1, "sizes": {}, "checks": [{"what": "copy", "hosts": []}]}',
            "check 0 has no readable status",
        ),
    ],
)
def test_a_baseline_that_cannot_be_read_is_refused_by_name(text, refusal, tmp_path):
    (tmp_path / record.FILE).write_text(text)
    with pytest.raises(UsageError) as caught:
        record.read(tmp_path)
    assert refusal.format(run=tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_run_of_a_sweep_is_no_baseline(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(UsageError, match=r"there is no accept\.json; expected what ddlbench accept --out wrote"):
        record.read(tmp_path)


def test_two_nodes_of_one_host_have_names_of_their_own_and_one_host_in_the_file():
    report = replace(report_of(Cluster(2)), hosts=("box#0", "box#1"))
    assert tables.hostfile(report) == "box slots=1\nbox slots=1\n"


def test_a_figure_without_a_value_is_shown_as_nothing():
    check = Check("node", (0,), "copy", float("nan"), 1.0, 1.0, "", "fail", "no figure was measured")
    assert tables.value_text(check, check.measured) == ""
    assert tables.why(check) == "copies memory: no figure was measured"
