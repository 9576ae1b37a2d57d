"""What auto takes: the rule of a table for these ranks, else the closed forms; the same on all ranks."""

import json

import pytest

from ddlbench.algorithms import available, resolve
from ddlbench.cost.closed import model_seconds
from ddlbench.cost.links import Links
from ddlbench.dtypes import dtype_named
from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import lower
from ddlbench.schedule.move import COPY
from ddlbench.topology import Topology, processor
from ddlbench.tuning import Range, Rule, Source, Table, choice, places, priced
from ddlbench.tuning.choice import Chooser, TuningWarning, look, why_not
from ddlbench.tuning.table import Machine, Shape, write

FLOAT32 = dtype_named("float32")
RULE = {
    "nodes": 1,
    "ranks_per_node": "2",
    "ranks": 2,
    "grid": "2",
    "virtual": False,
    "device": "cpu",
    "transport": "p2p",
    "dtype": "float32",
    "op": "sum",
    "in_place": False,
    "run": 0,
}


def topology(*ranks_per_node, machines=None):
    nodes = tuple(node for node, ranks in enumerate(ranks_per_node) for _ in range(ranks))
    cpus = tuple((rank,) for rank in range(len(nodes)))
    return Topology(tuple(f"node{node}" for node in nodes), nodes, cpus, (), machines or nodes)


def rule(*algorithms, **changes):
    """A rule with a range from 0 for the first of `algorithms`, from 1000 for the second, and so on."""
    ranges = tuple(
        Range(from_nbytes=1000 * at, algorithm=name, measured=(1000 * at,), clear=())
        for at, name in enumerate(algorithms)
    )
    return Rule(**(RULE | changes), ranges=ranges)


def table(*rules, **changes):
    run = Source(directory="mine", created="2026-03-02T09:41:07+00:00", ddlbench="0.1.0", mpi_version="5.0.11",
                 hosts=(), finished=True, cache="warm", trust=())  # fmt: skip
    values = {
        "ddlbench": "0.1.0",
        "created": "2026-03-03T08:00:00+00:00",
        "processor": processor(),
        "mpi": "Open MPI",
        "runs": (run,),
        "rules": rules,
    }
    return Table(**(values | changes))


@pytest.fixture(autouse=True)
def settings(monkeypatch, tmp_path):
    """Keep the tables of whoever runs the tests out of them."""
    monkeypatch.delenv(places.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))


@pytest.fixture
def chooser(monkeypatch, tmp_path):
    """Give a function that stores rules in a table of this machine and returns the chooser of two ranks."""

    def made(*rules, where=None, grid=None, **changes):
        where = where or topology(2)
        write(table(*rules, **changes), tmp_path / "mine.json")
        monkeypatch.setenv(places.VARIABLE, str(tmp_path / "mine.json"))
        on = grid or where.grid()
        return Chooser(on, look(where, on, "Open MPI"))

    return made


def chosen(chooser, nbytes=0, dtype="float32", op="sum", *, in_place=False, transport="p2p"):
    found = chooser.choose(nbytes, dtype_named(dtype), op, in_place=in_place, transport=transport)
    return found.algorithm.name, found.why


# ---- By a table ----------------------------------------------------------------------------------------------------


def test_the_range_that_a_vector_lies_in_gives_the_algorithm_and_the_reason(chooser):
    ours = chooser(rule("direct", "ring", "mpi"))
    assert [chosen(ours, nbytes)[0] for nbytes in (0, 999, 1000, 2000, 1 << 40)] == [
        "direct", "direct", "ring", "mpi", "mpi"
    ]  # fmt: skip
    assert chosen(ours)[1] == "measured table mine.json of 2026-03-03"


def test_only_rules_of_these_very_ranks_count(chooser):
    two = {"nodes": 2, "ranks": 4, "grid": "2x2"}
    ours = chooser(rule("mpi"), rule("leader", **two), rule("swing", **two, virtual=True), where=topology(2, 2))
    assert chosen(ours)[0] == "leader"
    ours = chooser(rule("leader", **two), rule("swing", **two, virtual=True), where=topology(2, 2, machines=(0,) * 4))
    assert chosen(ours)[0] == "swing"
    assert chosen(chooser(rule("leader", **two)))[1] == (
        "closed form: measured table mine.json of 2026-03-03 has nothing for 1 node of 2 ranks"
    )


def test_a_rule_of_another_grid_does_not_count(chooser):
    four = {"nodes": 1, "ranks_per_node": "4", "ranks": 4}
    rules = rule("mpi", **four, grid="4"), rule("hierarchical", **four, grid="2x2")
    assert chosen(chooser(*rules, where=topology(4)))[0] == "mpi"
    ours = chooser(*rules, where=topology(4), grid=Grid((2, 2)))
    assert chosen(ours)[0] == "hierarchical"
    assert ours.choose(0, FLOAT32, "sum", in_place=False, transport="p2p").algorithm.grid == Grid((2, 2))


def test_uneven_nodes_have_rules_by_their_ranks(chooser):
    ours = chooser(rule("swing", nodes=2, ranks_per_node="", ranks=3, grid="3"), where=topology(2, 1))
    assert chosen(ours)[0] == "swing"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, "ring"),
        ({"in_place": True}, "direct"),
        ({"in_place": True, "dtype": "float64"}, "direct"),
        ({"dtype": "float64"}, "swing"),
        ({"dtype": "float64", "op": "max"}, "swing"),
        ({"dtype": "int32"}, "ring"),
        ({"dtype": "int32", "op": "max"}, "halving-doubling"),
        ({"dtype": "bfloat16"}, "ring"),
        ({"dtype": "int64"}, "swing"),
    ],
)
def test_what_was_not_measured_goes_by_the_nearest_that_was_and_says_so(chooser, asked, expected):
    ours = chooser(
        rule("ring"),
        rule("halving-doubling", op="max"),
        rule("direct", in_place=True),
        rule("swing", dtype="float64"),
    )
    name, why = chosen(ours, **asked)
    assert name == expected
    assert (", measured for float" in why) == (asked not in ({}, {"in_place": True}, {"dtype": "float64"}))


def test_of_dtypes_of_one_size_the_one_asked_for_comes_before_others(chooser):
    ours = chooser(rule("swing", dtype="int32"), rule("ring"))
    assert chosen(ours) == ("ring", "measured table mine.json of 2026-03-03")


def test_the_transport_counts_first_and_another_kind_of_it_not_at_all(chooser):
    ours = chooser(rule("ring", transport="direct"), rule("swing", transport="direct-slots", in_place=True))
    assert chosen(ours, transport="direct", in_place=True)[0] == "ring"
    assert chosen(ours, transport="direct-slots")[0] == "swing"
    assert chosen(ours)[1] == "closed form: measured table mine.json of 2026-03-03 has nothing over p2p"


def test_the_vendors_where_it_has_no_such_type_gives_way_to_the_closed_form(chooser):
    ours = chooser(rule("mpi"))
    assert chosen(ours, dtype="float64")[0] == "mpi"
    for dtype in ("float16", "bfloat16"):
        name, why = chosen(ours, dtype=dtype)
        assert name != "mpi"
        assert why.endswith(f"mine.json of 2026-03-03 has mpi, which has no {dtype}")
    assert chosen(ours, dtype="uint8")[0] == "mpi"


def test_a_rule_that_cannot_be_followed_here_is_refused_by_name(chooser):
    with pytest.raises(UsageError, match=r"mine\.json: the rule for 1 node of 2 ranks, float32 sum.*'rign': did you"):
        chooser(rule("ring", "rign"))
    with pytest.raises(UsageError, match=r"mine\.json: the rule for .*holds 8 ranks, but there are 2"):
        chooser(rule("multi-ring:4x2"))
    with pytest.raises(UsageError, match="unknown dtype 'float31'"):
        chooser(rule("ring", dtype="float31"))
    assert chosen(chooser(rule("rign", nodes=2, ranks=4)))[0] != "rign"  # it is not for these ranks


def test_what_can_be_chosen_is_known_beforehand_those_with_a_schedule_last(chooser):
    ours = chooser(rule("mpi", "swing", "mpi"), rule("ring", in_place=True))
    found = [bound.name for bound in ours.alternatives()]
    assert found[0] == "mpi"
    assert len(found) == len(set(found))
    forms = {
        one.algorithm
        for name in ("p2p", "direct")
        for one in priced.ranges(Grid((2,)), nodes=1, even=True, transport=name)
    }
    assert set(found) == {"mpi", "swing", "ring"} | forms


# ---- Which table ---------------------------------------------------------------------------------------------------


def test_the_table_of_this_machine_is_found_where_tune_writes_it(monkeypatch):
    shape = Shape(nodes=1, ranks_per_node="2", ranks=2, grid="2")
    place = places.default(Machine(processor=processor(), mpi="Open MPI"), shape)
    assert look(topology(2), Grid((2,)), "Open MPI").lacking == "no measured table"
    write(table(rule("swing")), place)
    found = look(topology(2), Grid((2,)), "Open MPI")
    assert (found.rules, found.origin) == ((rule("swing"),), "measured table 1-node-of-2-ranks.json of 2026-03-03")
    assert look(topology(2), Grid((2,)), "MPICH").rules == ()
    assert look(topology(3), Grid((3,)), "Open MPI").rules == ()
    monkeypatch.setenv(places.VARIABLE, places.NONE)
    assert look(topology(2), Grid((2,)), "Open MPI").lacking == "no measured table"


def test_a_table_that_was_named_goes_before_it(chooser):
    shape = Shape(nodes=1, ranks_per_node="2", ranks=2, grid="2")
    write(table(rule("swing")), places.default(Machine(processor=processor(), mpi="Open MPI"), shape))
    assert chosen(chooser(rule("ring")))[0] == "ring"


def test_a_table_of_another_machine_is_used_with_a_warning(chooser):
    with pytest.warns(TuningWarning, match="was measured on POWER8 with MPICH, this is .* with Open MPI: it is used"):
        ours = chooser(rule("swing"), processor="POWER8", mpi="MPICH")
    assert chosen(ours) == ("swing", "measured table mine.json of 2026-03-03 of another machine")


def test_a_named_table_that_cannot_be_used_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(places.VARIABLE, str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match=r"DDLBENCH_TUNING=.*none\.json: there is no such file.*=none does without"):
        look(topology(2), Grid((2,)), "Open MPI")
    (tmp_path / "none.json").write_text(json.dumps(table(rule("ring")).to_json() | {"version": 99}))
    with pytest.raises(UsageError, match="format version 99 is newer"):
        look(topology(2), Grid((2,)), "Open MPI")


class Alone:
    """A communicator of one process, that can also be told what rank 0 says."""

    def __init__(self, said=None):
        self.rank, self._said, self.told = int(said is not None), said, None

    def bcast(self, value):
        self.told = value
        return value if self._said is None else self._said


def test_all_ranks_take_what_rank_0_says_and_raise_what_it_met(monkeypatch):
    monkeypatch.setattr(choice, "_library", lambda: "Open MPI")
    monkeypatch.setenv(places.VARIABLE, "/nowhere.json")
    first = Alone()
    with pytest.raises(UsageError, match="there is no such file"):
        Chooser.of(first, topology(2), Grid((2,)))
    assert isinstance(first.told, UsageError)
    with pytest.raises(DdlbenchError, match="as rank 0 met it"):
        Chooser.of(Alone(DdlbenchError("as rank 0 met it")), topology(2), Grid((2,)))
    found = choice.Found((rule("swing"),), "a table", "", {})
    assert chosen(Chooser.of(Alone(found), topology(2), Grid((2,)))) == ("swing", "a table")


# ---- By closed form ------------------------------------------------------------------------------------------------


def time_s(name, grid, nodes, nbytes, transport="p2p"):
    """The time of an algorithm as docs/tuning.md writes it, worked out anew."""
    bound, assumed = resolve(name, grid), priced.ASSUMED[transport]
    links = Links(nodes, assumed.within, assumed.between if nodes > 1 else None, assumed.reduce_bytes_per_s)
    messages = sum(lower(bound, [0]).table["kind"] != COPY)
    overhead = assumed.between_overhead_s if nodes > 1 else assumed.within_overhead_s
    return model_seconds(links, nodes, grid.size, bound, nbytes) + messages * overhead


@pytest.mark.parametrize("ranks_per_node", [(2,), (4,), (7,), (2, 2), (8,) * 8, (1,) * 6])
@pytest.mark.parametrize("transport", ["p2p", "direct"])
def test_without_a_table_the_least_closed_form_of_all_that_is_possible_is_taken(ranks_per_node, transport):
    where = topology(*ranks_per_node)
    grid, nodes = where.grid(), where.nodes
    found = priced.ranges(grid, nodes=nodes, even=True, transport=transport)
    assert found[0].from_nbytes == 0
    for nbytes in (8, 1000, 30_000, 500_000, 8 << 20, 1 << 30):
        took = next(one.algorithm for one in reversed(found) if one.from_nbytes <= nbytes)
        least = min(time_s(one.name, grid, nodes, nbytes, transport) for one in available())
        assert time_s(took, grid, nodes, nbytes, transport) == pytest.approx(least, rel=1e-6)


def test_a_small_vector_takes_fewer_rounds_than_a_large_one_over_a_network():
    ours = Chooser(Grid((4, 4)), look(topology(4, 4, 4, 4), Grid((4, 4)), "Open MPI"))
    small, large = (resolve(chosen(ours, nbytes)[0], Grid((4, 4))).costs() for nbytes in (8, 64 << 20))
    assert small.rounds < large.rounds
    assert small.between_nodes > large.between_nodes
    assert chosen(ours)[1] == "closed form: no measured table"


def test_uneven_nodes_exclude_algorithms_that_need_even_ones():
    every, flat = ([one.name for one in priced._possible(Grid((1, 6)), node_aware=aware)] for aware in (True, False))
    assert set(every) - set(flat) == {one.name for one in available() if one.node_aware}
    assert "ring" in flat
    where = topology(3, 1, 2)
    ours = Chooser(where.grid(), look(where, where.grid(), "Open MPI"))
    assert [bound.name for bound in ours.alternatives() if bound.algorithm.node_aware] == []
    assert chosen(ours, 64 << 20)[0]


def test_one_rank_has_a_choice_too():
    ours = Chooser(Grid((1,)), look(topology(1), Grid((1,)), "Open MPI"))
    assert resolve(chosen(ours)[0], Grid((1,))).algorithm is not None


# ---- Names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ring", ""),
        ("multi-ring:2", ""),
        ("r:2x2", ""),
        ("mpi", ""),
        ("auto", "it chooses among others itself"),
        ("p:2x2", "it chooses among others itself"),
        ("mine.py:bruck", "its file is not found again by its name alone"),
        ("bruck.json", "its file is not found again by its name alone"),
        ("osu_allreduce", "unknown algorithm 'osu_allreduce'"),
    ],
)
def test_a_table_holds_what_can_be_named_again(name, reason):
    assert why_not(name, "2x2") == reason


@pytest.mark.parametrize("text", ["auto:2", "auto:4x2", "auto:k=2"])
def test_auto_takes_no_parameters(text):
    with pytest.raises(UsageError, match=f"'{text}': auto takes no parameters"):
        resolve(text, Grid((8,)))


def test_auto_alone_has_no_schedule_to_look_at():
    bound = resolve("auto", Grid((8,)))
    assert (bound.name, bound.auto, bound.costs()) == ("auto", True, None)
    with pytest.raises(UsageError, match="'auto' has no schedule of its own"):
        lower(bound)
