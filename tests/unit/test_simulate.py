"""The simulator: closed forms met to rounding, contention worked out by hand, and ranks that stand for all."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from ddlbench.algorithms import available, resolve
from ddlbench.cost.limits import binding, limits
from ddlbench.cost.network import ISLAND, NIC, NODE, RACK, Placement
from ddlbench.cost.rounds import prepare
from ddlbench.cost.sharing import Sharing, fair_rates
from ddlbench.cost.simulate import seconds
from ddlbench.errors import UsageError
from ddlbench.schedule import BoundAlgorithm, Phase, flat_algorithm
from machines import ADDING, LATENCY, RATE, machine, price

REFERENCE = Path(__file__).parents[1] / "reference"
NAMES = [algorithm.name for algorithm in available()]
N = 8_000_000


# ---- Closed forms ----------------------------------------------------------------------------------------------------


def ring(p, n):
    return 2 * (p - 1) * LATENCY + 2 * (p - 1) / p * n / RATE + (p - 1) / p * n / ADDING


def recursive_doubling(p, n):
    return math.log2(p) * (LATENCY + n / RATE + n / ADDING)


def halving_doubling(p, n):
    return 2 * math.log2(p) * LATENCY + 2 * (p - 1) / p * n / RATE + (p - 1) / p * n / ADDING


def on_grid(dims, n):
    p = math.prod(dims)
    return 2 * sum(d - 1 for d in dims) * LATENCY + 2 * (p - 1) / p * n / RATE + (p - 1) / p * n / ADDING


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(
    ("text", "ranks", "expected"),
    [
        *(("ring", p, ring(p, N)) for p in (2, 3, 5, 8, 33)),
        *(("recursive-doubling", p, recursive_doubling(p, N)) for p in (2, 4, 64)),
        *(("halving-doubling", p, halving_doubling(p, N)) for p in (2, 4, 64)),
        *(("swing", p, halving_doubling(p, N)) for p in (4, 16)),
        *((f"multi-ring:{'x'.join(map(str, d))}", math.prod(d), on_grid(d, N)) for d in ((4, 8), (3, 5), (2, 3, 4))),
        ("direct", 8, 2 * LATENCY + 2 * 7 / 8 * N / RATE + 7 / 8 * N / ADDING),
        ("leader:across=recursive-doubling", 8, recursive_doubling(8, N)),
    ],
)
def test_a_closed_form_on_equal_links_is_met_to_rounding(text, ranks, expected, fold):
    found = price(text, machine(ranks), N, grid=f"1x{ranks}" if ":" not in text else None, fold=fold)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize(("x", "y", "z"), [(4, 8, 1), (2, 3, 4), (4, 4, 2)])
def test_a_grid_with_a_link_for_each_dimension_meets_its_closed_form(x, y, z, fold):
    """Ranks of a node share its card, those of a rack its uplink: each has its share of the bandwidth."""
    inside, card, uplink = 8e9, 2e9, 3e9
    on = machine(y * z, x, rack=y if z > 1 else 0, node_bandwidth=inside, node_latency=1e-6)
    on = on.with_value("nic.bandwidth", card, "a test").with_value("nic.latency", 20e-6, "a test")
    if z > 1:
        on = on.with_value("rack.latency", 50e-6, "a test").with_value("rack.uplink", uplink, "a test")
    dims, latency = (x, y, z), (1e-6, 20e-6, 50e-6)
    rate = (inside, card / x, min(card / x, uplink / (x * y)))
    p, left, expected = x * y * z, N, (x * y * z - 1) / (x * y * z) * N / ADDING
    for size, a, b in zip(dims, latency, rate, strict=True):
        expected += 2 * (size - 1) * a + 2 * (size - 1) / size * left / b
        left /= size
    grid = f"{x}x{y}x{z}" if z > 1 else f"{x}x{y}"
    assert price(f"multi-ring:{grid}", on, N, fold=fold) == pytest.approx(expected, rel=1e-12)
    assert p == on.nodes * on.ranks_per_node


def reference(name):
    with (REFERENCE / name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_formula_of_the_reference_is_held_by_a_test_here():
    """The two grid forms, ring, recursive and halving doubling above; four lower bounds below."""
    names = [row["algorithm"] for row in reference("cost_formulas.csv")]
    assert len(names) == 9
    assert sum(name.startswith("lower bound") for name in names) == 4


@pytest.mark.parametrize("row", reference("cost_examples.csv"), ids=lambda r: r["algorithm"])
def test_the_reference_examples_are_met_to_a_thousandth(row):
    figures = {name: float(row[name]) for name in ("nbytes", "latency_s", "bytes_per_s", "seconds")}
    ranks = int(row["ranks"])
    on = machine(ranks, nic_latency=figures["latency_s"], nic_bandwidth=figures["bytes_per_s"], adding=1e30)
    text = row["algorithm"].replace(" ", ":")
    assert price(text, on, figures["nbytes"], grid=f"1x{ranks}") == pytest.approx(figures["seconds"], rel=1e-3)


# ---- Contention, by hand ---------------------------------------------------------------------------------------------


def test_eight_senders_to_one_receiver_take_eight_times_as_long():
    def push(senders):
        on = machine(senders + 1, adding=1e30)
        return price("parameter-server", on, N) / 2 - LATENCY

    assert push(1) == pytest.approx(N / RATE, rel=1e-12)
    assert push(8) == pytest.approx(8 * push(1), rel=1e-12)


def test_a_sender_serialises_what_it_sends_to_several():
    assert price("direct", machine(9, adding=1e30), 9 * N) == pytest.approx(2 * (LATENCY + 8 * N / RATE), rel=1e-12)


def test_ranks_of_a_node_share_its_card_and_two_cards_are_twice_as_fast():
    def pair(**figures):  # on 2 nodes of 4 ranks, partners at distance 4 exchange everything
        on = machine(2, 4, adding=1e30, node_bandwidth=1e30, **figures)
        return price("recursive-doubling", on, N) - 3 * LATENCY

    assert pair() == pytest.approx(4 * N / RATE, rel=1e-9)
    assert pair(nic_count=2) == pytest.approx(2 * N / RATE, rel=1e-9)
    assert pair(nic_per_rank=RATE / 8) == pytest.approx(8 * N / RATE, rel=1e-9)
    assert pair(nic_both_ways=RATE) == pytest.approx(8 * N / RATE, rel=1e-9)


def test_racks_share_an_uplink():
    on = machine(8, 1, rack=4, adding=1e30, nic_bandwidth=1e30)
    assert price("recursive-doubling", on, N) - 3 * LATENCY == pytest.approx(4 * N / RATE, rel=1e-9)


def test_what_a_node_shares_holds_up_all_its_ranks():
    on = machine(1, 4, adding=1e30, node_shared=RATE)
    assert price("ring", on, N) == pytest.approx(6 * LATENCY + 6 * N / RATE, rel=1e-12)


def test_both_ways_together_hold_up_an_exchange_but_not_one_way():
    on = machine(1, 2, adding=1e30, node_both_ways=RATE)
    assert price("recursive-doubling", on, N) == pytest.approx(LATENCY + 2 * N / RATE, rel=1e-12)
    assert price("parameter-server", on, N) == pytest.approx(2 * (LATENCY + N / RATE), rel=1e-12)


def test_islands_have_links_of_their_own():
    on = machine(1, 4, islands=2, island_bandwidth=4e9, island_latency=1e-6, adding=1e30)
    expected = 1e-6 + N / 4e9 + LATENCY + N / RATE
    assert price("recursive-doubling", on, N) == pytest.approx(expected, rel=1e-12)


def test_a_rank_adds_its_arrivals_one_after_the_other():
    on = machine(9, nic_bandwidth=1e30)
    assert price("parameter-server", on, N) == pytest.approx(2 * LATENCY + 8 * N / ADDING, rel=1e-9)


def test_messages_cost_their_ranks_the_overhead_one_by_one():
    on = machine(9, overhead=1e-6, adding=1e30, nic_bandwidth=1e30)
    # Eight messages arrive at once, and each takes the server a microsecond; then it sends eight.
    push, pull = LATENCY + 7e-6, LATENCY + 7e-6
    assert price("parameter-server", on, 8) == pytest.approx(push + pull, rel=1e-9)


def test_a_late_receiver_holds_up_a_long_message_but_not_a_short_one():
    """Up a binomial tree of three ranks, rank 2 could send at once, but rank 0 first waits for rank 1."""
    waiting = machine(3, adding=1e30, nic_bandwidth=1e30)
    assert price("leader", waiting, 8, grid="3") == pytest.approx(4 * LATENCY, rel=1e-9)
    eager = machine(3, eager=64, adding=1e30, nic_bandwidth=1e30)
    # Both arrive after one latency, and rank 0 sends both back without waiting for either.
    assert price("leader", eager, 8, grid="3") == pytest.approx(2 * LATENCY, rel=1e-9)
    # Where an addition takes 5 us, rank 0 adds one after the other.
    slow = machine(3, eager=64, adding=8 / 5e-6, nic_bandwidth=1e30)
    assert price("leader", slow, 8, grid="3") == pytest.approx(2 * LATENCY + 2 * 5e-6, rel=1e-9)


def test_segments_overlap_the_rounds_of_a_schedule():
    """Two rounds on links of their own: s segments take s + 1 ticks of 1/s of the time of a round each."""
    on = machine(2, 2, adding=1e30)
    whole, cut = (price("recursive-doubling", on, N, segments=s, each=2) for s in (1, 4))
    assert whole == pytest.approx(2 * LATENCY + (N + 2 * N) / RATE, rel=1e-9)
    # The card's round lasts twice as long as the node's, so it sets the pace of the three ticks that have both.
    assert cut == pytest.approx(5 * LATENCY + (N / 4 + 4 * 2 * N / 4) / RATE, rel=1e-9)


def test_ranks_that_are_not_in_step_share_a_card_over_ticks():
    """No schedule is faster than what a node's card must carry, though its ranks are rounds apart."""
    fast = {"node_bandwidth": 25e9, "island_bandwidth": 36e9, "adding": 180e9}
    on = machine(16, 4, islands=2, nic_bandwidth=3e9, nic_count=2, **fast)
    assert price("swing", on, N) > limits(on, Placement.on(on, 16, 4), N)["cards"]


def test_one_rank_takes_no_time():
    for name in NAMES:
        assert price(name, machine(), N) == 0.0


# ---- Sharing ---------------------------------------------------------------------------------------------------------


def test_rates_are_max_min_fair():
    # Three messages over resource 1 (capacity 3); the third also over resource 2 (capacity 0.5); a fourth over 2 and 3.
    used = np.array([[1, 1, 1, 2], [0, 0, 2, 3]])
    rates = fair_rates(used, np.array([np.inf, 3.0, 0.5, 9.0]))
    assert rates == pytest.approx([1.375, 1.375, 0.25, 0.25])


def test_a_message_that_comes_later_shares_from_then_on():
    used = np.array([[1, 1]])
    finish = Sharing(used).finish(np.array([0.0, 1.0]), np.array([2.0, 2.0]), np.array([np.inf, 1.0]))
    # Alone until 1, half the rate each until the first is through at 3, alone until 4.
    assert finish == pytest.approx([3.0, 4.0])


def test_many_different_starts_are_gathered_and_lose_no_bytes():
    count = 500
    start, nbytes = np.linspace(0.0, 1.0, count), np.full(count, 1.0)
    finish = Sharing(np.ones((1, count), np.int64)).finish(start, nbytes, np.array([np.inf, float(count) / 2]))
    assert finish.max() == pytest.approx(2.0, rel=0.05)
    assert (finish >= start + 2.0 / count).all()


# ---- Properties ------------------------------------------------------------------------------------------------------

MACHINES = {
    "flat": machine(8),
    "cards": machine(4, 4, node_bandwidth=5e9, nic_count=2, overhead=1e-6),
    "islands": machine(2, 4, islands=2, island_bandwidth=4e9, node_shared=3e9),
    "racks": machine(8, 2, rack=4, rack_uplink=2e9, eager=4096),
    "odd": machine(3, 3),
    "one node": machine(1, 6, node_both_ways=1.5e9),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("on", MACHINES.values(), ids=MACHINES)
def test_a_time_is_no_less_than_any_limit_and_grows_with_bytes_and_latency(name, on):
    placement = Placement.on(on, on.nodes)
    sizes = (8, 4_000, 400_000, 40_000_000)
    times = [price(name, on, nbytes) for nbytes in sizes]
    assert times == sorted(times)
    for nbytes, found in zip(sizes, times, strict=True):
        assert found >= max(limits(on, placement, nbytes).values()) * (1 - 1e-9)
    slower = on
    for section in ("island", "node", "nic", "rack"):
        if getattr(on, section) is not None:
            slower = slower.with_value(f"{section}.latency", 3 * LATENCY, "a test")
    assert all(price(name, slower, nbytes) > found for nbytes, found in zip(sizes, times, strict=True))


@pytest.mark.parametrize("text", [*NAMES, "hierarchical:across=direct", "multi-ring:4", "leader:across=swing"])
@pytest.mark.parametrize("on", MACHINES.values(), ids=MACHINES)
def test_ranks_that_stand_for_all_take_as_long_as_all(text, on):
    exact = on.message_overhead == 0
    for nbytes in (8, 50_000, 5_000_000):
        for segments in (1, 3):
            folded, whole = (price(text, on, nbytes, segments=segments, fold=fold) for fold in (True, False))
            assert folded == pytest.approx(whole, rel=1e-9 if exact else 0.01)


@pytest.mark.parametrize(
    ("text", "nodes", "each", "period"),
    [
        *(("ring", 8, 4, 4), ("ring", 8, 1, 1), ("multi-ring", 8, 4, 4), ("hierarchical", 8, 4, 4)),
        *(("halving-doubling", 8, 4, 4), ("direct", 8, 2, 2), ("leader", 8, 4, 4), ("swing", 8, 2, 2)),
        *(("halving-doubling", 6, 4, 24), ("double-binary-tree", 8, 4, 32), ("parameter-server", 8, 4, 32)),
    ],
)
def test_the_ranks_of_a_node_stand_for_all_where_all_nodes_are_alike(text, nodes, each, period):
    placement = Placement.on(machine(nodes, each), nodes, each)
    assert prepare(resolve(text, placement.grid), placement).period == period


def test_an_irregular_schedule_is_not_folded_though_nearly_all_its_ranks_are_alike():
    """65 ranks: all of the first 64 but one do the same; the sample of ranks has the odd ones."""
    placement = Placement.on(machine(1025, 1), 1025, 1)
    assert prepare(resolve("halving-doubling", placement.grid), placement).period == 1025


def test_ranks_whose_messages_cross_other_links_do_not_stand_for_each_other():
    """Ranks 0 and 1 meet in their node, 2 and 5 between nodes: odd and even meet in either, which looks alike."""

    def pairs(group):
        other = np.array([1, 0, 5, 4, 3, 2, 7, 6])[group.position]
        yield Phase(1, (group.send(0, to=other, piece=0), group.add(0, source=other, piece=0)))

    algorithm = flat_algorithm("pairs", "no allreduce", pieces=lambda _: 1, allreduce=pairs)
    placement = Placement.on(machine(4, 2), 4, 2)
    assert prepare(BoundAlgorithm("pairs", placement.grid, algorithm), placement).period == 8


def test_ticks_that_repeat_are_counted_and_come_to_the_same():
    placement = Placement.on(on := machine(16, 4, node_bandwidth=9e9), 16, 4)
    for text in ("ring", "multi-ring:4", "swing"):
        program = prepare(resolve(text, placement.grid), placement)
        ticks = []
        gone_through = seconds(program, on, N, watch=ticks.append)
        assert seconds(program, on, N) == pytest.approx(gone_through, rel=1e-6)
        assert [tick.number for tick in ticks] == list(range(len(ticks)))
        assert all((tick.arrived >= tick.left).all() and (tick.ended >= tick.begun).all() for tick in ticks)


def test_levels_follow_islands_nodes_and_racks():
    placement = Placement.on(machine(4, 4, islands=2, rack=2), 4, 4)
    zero = np.zeros(5, np.int64)
    assert placement.level(zero, np.array([1, 2, 4, 8, 12])).tolist() == [ISLAND, NODE, NIC, RACK, RACK]


# ---- Limits ----------------------------------------------------------------------------------------------------------


def test_limits_by_hand():
    on = machine(8, 4, rack=4, nic_count=2, rack_uplink=3e9)
    found = limits(on, Placement.on(on, 8, 4), N)
    assert found == pytest.approx(
        {
            "latency": LATENCY,
            "bandwidth": 2 * 31 / 32 * N / (2 * RATE),
            "reduction": 31 / 32 * N / ADDING,
            "cards": 2 * 7 / 8 * N / (2 * RATE),
            "uplink": 2 * 1 / 2 * N / 3e9,
        }
    )
    assert binding(found) == "bandwidth"
    assert limits(on, Placement.on(on, 1, 1), N) == {}
    assert binding({}) == ""


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (3, 2), (8, 3), (9, 4), (64, 6)])
def test_a_rank_that_is_busy_until_its_message_has_arrived_needs_a_latency_for_each_doubling(ranks, rounds):
    on = machine(ranks, overhead=LATENCY / 2)
    least = limits(on, Placement.on(on, ranks, 1), 0)["latency"]
    assert LATENCY <= least <= rounds * LATENCY
    assert least == pytest.approx(reached(ranks, LATENCY, LATENCY / 2))


def reached(ranks, latency, overhead):
    """The same bound by counting: who knew it one latency ago, or sent it one overhead ago, has informed one more."""
    step, informed = overhead, {0: 1}
    delay, tick = round(latency / overhead), 0
    while informed[tick] < ranks:
        tick += 1
        informed[tick] = informed[tick - 1] + informed.get(tick - delay, 0)
    return tick * step


# ---- Refusals --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_priced_is_refused_by_name():
    placement = Placement.on(machine(4, 2), 4, 2)
    with pytest.raises(UsageError, match="'mpi' is a vendor's own code"):
        prepare(resolve("mpi", placement.grid), placement)
    with pytest.raises(UsageError, match="grid 4x4 holds 16 ranks, but there are 8"):
        prepare(resolve("ring:4x4", Placement.on(machine(4, 4), 4, 4).grid), placement)
    with pytest.raises(UsageError, match="5 nodes: the machine 'made-up' has 4 nodes"):
        Placement.on(machine(4, 2), 5, 2)
    with pytest.raises(UsageError, match="4 ranks per node: the machine 'made-up' has 2 ranks per node"):
        Placement.on(machine(4, 2), 4, 4)
