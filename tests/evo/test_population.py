"""Selection and variation; the traps of DEAP each have a test here."""

from __future__ import annotations

import ast
import math
import random
from collections import Counter
from pathlib import Path

import pytest

import evo
from evo.population import Member, Niches, Population, Share, Spread, chance

SHARES = {"tune": Share(2.0, 1), "splice": Share(1.0, 2)}


def population(islands: int = 2, size: int = 4, hall: int = 16) -> Population:
    return Population(7, SHARES, islands, size, hall)


def members(*times: float) -> list[Member]:
    return [Member(n, time_us) for n, time_us in enumerate(times)]


def test_only_this_module_imports_deap() -> None:
    root = Path(evo.__file__).parent.parent
    importers = []
    for package in ("evo", "mutations", "fitness", "seeds"):
        for path in (root / package).rglob("*.py"):
            text = path.read_text()
            if "deap" not in text:
                continue
            tree = ast.parse(text)
            names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
            names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            importers += [path.name for name in names if name.split(".")[0] == "deap"]
    assert set(importers) == {"population.py"}


@pytest.mark.parametrize("time_us", [math.nan, math.inf, 0.0, -1.0])
def test_trap_nan_ranks_best_so_failures_stay_out(time_us: float) -> None:
    with pytest.raises(ValueError, match="stay out"):
        Member(3, time_us)
    with pytest.raises(ValueError, match="stay out"):  # it would crash lexicase selection
        Member(3, 1.0, (1.0, time_us))


def test_trap_the_hall_of_fame_needs_equality() -> None:
    assert Member(1, 2.0) == Member(1, 3.0)
    assert Member(1, 2.0) != Member(2, 2.0)
    assert len({Member(1, 2.0), Member(1, 2.0)}) == 1
    crowd = population(hall=3)
    crowd.start(members(5.0, 4.0))
    crowd.start(members(5.0, 4.0))
    assert [m.n for m in crowd.hall] == [1, 0]
    crowd.survive(0, [Member(n, 1.0 + n / 10) for n in range(2, 6)], lambda n: n)
    assert [m.n for m in crowd.hall] == [2, 3, 4]


def test_trap_an_empty_hall_is_updated_with_nothing() -> None:
    crowd = population()
    crowd.start([])
    crowd.start(members(3.0))
    crowd.remove(0)
    assert list(crowd.hall) == []
    assert crowd.empty


def test_trap_varor_is_serial_so_only_decisions_are_made() -> None:
    crowd = population()
    crowd.start(members(3.0, 2.0, 4.0))
    decisions = crowd.vary(1, 0, 40)
    assert len(decisions) == 40
    for decision in decisions:
        assert len(decision.parents) == SHARES[decision.operator].arity
        assert len(set(decision.parents)) == len(decision.parents)
    counts = Counter(decision.operator for decision in decisions)
    assert 15 < counts["tune"] < 36


def test_trap_migration_aliases_one_object_in_two_islands() -> None:
    crowd = population(islands=3)
    crowd.start([])
    crowd.islands = [[Member(10 * i + j, 1.0 + i + 10 * j) for j in range(3)] for i in range(3)]
    crowd.migrate()
    objects = [id(member) for island in crowd.islands for member in island]
    assert len(set(objects)) == len(objects)
    for i, island in enumerate(crowd.islands):
        best_of_previous = 10 * ((i - 1) % 3)
        assert best_of_previous in [m.n for m in island]
        assert 10 * i in [m.n for m in island]  # its own best stays
        assert 10 * i + 2 not in [m.n for m in island]  # its worst made room


def test_migration_spares_the_best_of_a_family() -> None:
    crowd = population(islands=2)
    crowd.islands = [[Member(10 * i + j, 1.0 + i + j) for j in range(3)] for i in range(2)]
    crowd.migrate(lambda n: "slow" if n == 12 else "fast")
    assert [m.n for m in crowd.islands[1]] == [0, 10, 12]  # 11 made room, not the slower 12


def test_migration_of_what_is_there_already_keeps_numbers_unique() -> None:
    crowd = population()
    crowd.start(members(3.0, 2.0, 4.0))
    crowd.migrate()
    for island in crowd.islands:
        assert len({m.n for m in island}) == len(island)
        assert min(m.time_us for m in island) == 2.0


def test_migration_needs_two_islands_with_two_members() -> None:
    crowd = population(islands=2)
    crowd.start(members(3.0))
    crowd.migrate()
    assert [[m.n for m in island] for island in crowd.islands] == [[0], [0]]


def test_the_global_random_is_seeded_here_and_put_back() -> None:
    crowd = population()
    crowd.start(members(3.0, 2.0, 4.0, 5.0))
    random.seed(1)
    state = random.getstate()
    first = crowd.vary(1, 0, 10)
    assert random.getstate() == state
    random.seed(99)
    assert crowd.vary(1, 0, 10) == first
    assert crowd.vary(2, 0, 10) != first
    assert crowd.vary(1, 1, 10) != first
    with pytest.raises(KeyError), chance(1, 2, 3):
        raise KeyError
    random.seed(99)
    assert random.random() == random.Random(99).random()


def test_a_longer_list_begins_with_the_shorter_one() -> None:
    crowd = population()
    crowd.start(members(3.0, 2.0, 4.0, 5.0))
    assert crowd.vary(3, 1, 20)[:7] == crowd.vary(3, 1, 7)


def test_selection_prefers_the_fast() -> None:
    crowd = population(islands=1, size=6)
    crowd.start(members(6.0, 5.5, 5.0, 4.0, 3.0, 2.0))
    drawn = Counter(decision.parents[0] for g in range(50) for decision in crowd.vary(g, 0, 20))
    assert drawn[5] > 0.35 * drawn.total()
    assert drawn[0] < 0.03 * drawn.total()


def test_one_member_alone_is_not_mated_while_another_operator_is_there() -> None:
    crowd = population()
    crowd.start(members(3.0))
    assert {decision.operator for decision in crowd.vary(1, 0, 30)} == {"tune"}
    lonely = Population(7, {"splice": Share(1.0, 2)}, 1, 4)
    lonely.start(members(3.0))
    assert lonely.vary(1, 0, 1)[0].parents == (0, 0)


def test_members_out_of_reach_do_not_breed() -> None:
    crowd = population(islands=1, size=6)
    crowd.start(members(900.0, 10.0, 39.0, 41.0))
    assert {n for d in crowd.vary(1, 0, 60) for n in d.parents} == {1, 2}
    crowd = population(islands=1, size=6)
    crowd.start(members(900.0, 10.0, 410.0))
    assert {n for d in crowd.vary(1, 0, 60) for n in d.parents} == {1, 2}  # two at least
    assert len(crowd.islands[0]) == 3


def test_only_narrows_the_operators() -> None:
    crowd = population()
    crowd.start(members(3.0, 2.0))
    assert {d.operator for d in crowd.vary(1, 0, 30, frozenset({"splice"}))} == {"splice"}


def test_survivors_are_the_best_of_parents_and_children() -> None:
    crowd = population(islands=1, size=3)
    crowd.start(members(5.0, 4.0))
    crowd.survive(0, [Member(2, 6.0), Member(3, 3.0), Member(4, 4.5)], lambda _n: 0)
    assert [m.n for m in crowd.islands[0]] == [3, 1, 4]


def test_specialists_survive_and_are_partners() -> None:
    crowd = population(islands=1, size=4)
    crowd.start([Member(0, 10.0, (10.0, 10.0)), Member(1, 11.0, (11.0, 11.0))])
    children = [Member(n, 10.0 + n / 10, (9.0 + n, 9.5)) for n in range(2, 8)]
    specialist = Member(8, 20.0, (2.0, 200.0))
    crowd.survive(0, [*children, specialist], lambda _n: 0)
    assert 8 in [m.n for m in crowd.islands[0]]
    assert crowd.islands[0][0].n == 0
    assert specialist.shape_us == (2.0, 200.0)
    partners = Counter(d.parents[1] for g in range(40) for d in crowd.vary(g, 0, 9, frozenset({"splice"})))
    assert partners[8] > 0.2 * partners.total()


def test_the_best_of_a_slower_family_lives_on_while_it_is_within_reach() -> None:
    crowd = population(islands=1, size=4)
    crowd.start([Member(0, 2.0), Member(1, 1.9), Member(2, 1.0)])
    children = [Member(n, 1.0 + n / 100) for n in range(3, 9)]  # all of the family of member 2
    crowd.survive(0, children, lambda n: min(n, 2), niches=2)
    assert [m.n for m in crowd.islands[0]] == [2, 3, 4, 1]
    crowd.survive(0, [Member(9, 0.5)], lambda n: 1 if n == 1 else 2, niches=2)
    assert [m.n for m in crowd.islands[0]] == [9, 2, 3, 4]


def test_a_slower_family_breeds_in_proportion_to_its_speed() -> None:
    crowd = population(islands=1, size=6)
    crowd.start([Member(0, 2.0), *(Member(n, 1.0 + n / 100) for n in range(1, 6))])

    def parents(spread: float, fast: float = 1.0) -> Counter[int]:
        niches = Niches(lambda n: "slow" if n == 0 else "fast", spread, {"fast": fast})
        return Counter(d.parents[0] for g in range(300) for d in crowd.vary(g, 0, 1, niches=niches))

    assert parents(0.0)[0] < 10  # the slowest of six in tournaments of three: one in 216
    assert 70 < parents(1.0)[0] < 130  # half as fast as the other family: a third
    assert 200 < parents(1.0, fast=0.125)[0] < 270  # and the other one is exhausted: four fifths


def test_equal_times_are_ordered_by_number() -> None:
    crowd = population(islands=1)
    crowd.start([Member(3, 1.0), Member(1, 1.0), Member(2, 1.0)])
    assert [m.n for m in crowd.islands[0]] == [1, 2, 3]


def test_statistics_and_logbook() -> None:
    crowd = population()
    assert crowd.record(0, members(3.0, 1.0, 2.0), judged=4, valid=3) == Spread(1.0, 2.0, 3.0)
    assert crowd.record(1, [], judged=4, valid=0) is None
    assert crowd.logbook.select("judged", "valid") == ([4, 4], [3, 0])
    assert crowd.logbook[0]["median_us"] == 2.0


def test_everything_goes_through_the_toolbox() -> None:
    toolbox = population().toolbox
    for name in ("select", "mate", "mutate", "migrate", "rank", "clone"):
        assert callable(getattr(toolbox, name))
