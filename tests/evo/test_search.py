from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo.population import Share
from evo.search import OrderError, Search, Settings
from fitness.outcome import CompileFailed, Gate, Outcome, Timed, Timing
from mutations.operator import Plan

SHARES = {"tune": Share(2.0, 1), "splice": Share(1.0, 2)}


def make(**changes: object) -> Search:
    values: dict[str, object] = {
        "rng_seed": 7, "seeds": 3, "generations": 4, "children": 8, "islands": 2, "operators": SHARES,
    }  # fmt: skip
    return Search(Settings(**(values | changes)))  # type: ignore[arg-type]


def timed(time_us: float, key: str | None = None, stage: Gate = Gate.TIMING) -> Timed:
    return Timed(stage, code_key=key, timings=(Timing({"N": 1}, "modelled", time_us, time_us, time_us, 1, 1, 1),))


def drive(search: Search, judge: Callable[[Plan], Outcome | None]) -> list[Plan]:
    plans = []
    while search.end is None:
        for plan in search.ask():
            plans.append(plan)
            search.tell(plan.n, judge(plan))
    return plans


def by_number(plan: Plan) -> Outcome | None:
    """A verdict that depends on n alone: some fail, some are refused, some repeat a code."""
    if plan.n % 11 == 10:
        return None
    if plan.n % 5 == 4:
        return CompileFailed(Gate.COMPILE)
    return timed(50.0 + (plan.n * 7919) % 101, f"k{plan.n % 13 if plan.n % 3 else plan.n}")


def test_numbers_generations_islands() -> None:
    plans = drive(make(), by_number)
    assert [plan.n for plan in plans] == list(range(3 + 4 * 8))
    assert [plan.operator for plan in plans[:3]] == ["seed"] * 3
    assert all(plan.generation == 1 + (plan.n - 3) // 8 for plan in plans[3:])
    for generation in range(1, 5):
        homes = [plan.island for plan in plans if plan.generation == generation]
        assert homes.count(0) == homes.count(1) == 4
    for plan in plans[3:]:
        assert len(plan.parents) == SHARES[plan.operator].arity
        assert max(plan.parents) < plan.n
        assert not set(plan.parents) & set(plan.inspirations)


def test_parents_are_valid() -> None:
    for plan in drive(make(generations=8), by_number):
        for n in (*plan.parents, *plan.inspirations):
            assert isinstance(by_number(Plan(n, 0, 0, "")), Timed)


def test_the_state_is_a_fold_over_the_outcomes() -> None:
    one, other = make(), make()
    plans = drive(one, by_number)
    assert drive(other, by_number) == plans
    assert one.stats == other.stats
    assert one.ranking() == other.ranking()
    assert drive(make(rng_seed=8), by_number) != plans


def test_more_generations_begin_like_fewer() -> None:
    assert drive(make(generations=7), by_number)[:35] == drive(make(), by_number)


def test_asking_twice_is_refused() -> None:
    search = make()
    search.ask()
    with pytest.raises(OrderError, match="candidates 0, 1, 2 of generation 0 wait for tell"):
        search.ask()


def test_telling_out_of_order_is_refused() -> None:
    search = make()
    with pytest.raises(OrderError, match="no such candidate"):
        search.tell(0, timed(1.0))
    search.ask()
    with pytest.raises(OrderError, match="candidate 0 is next"):
        search.tell(1, timed(1.0))
    search.tell(0, timed(1.0))
    with pytest.raises(OrderError, match="told before"):
        search.tell(0, timed(1.0))
    with pytest.raises(OrderError, match="no such candidate"):
        search.tell(99, timed(1.0))


def test_asking_after_the_end_is_refused() -> None:
    search = make(generations=0)
    drive(search, by_number)
    assert search.end == "generations"
    with pytest.raises(OrderError, match="generations"):
        search.ask()


def test_no_valid_seed_is_the_end() -> None:
    search = make()
    drive(search, lambda _plan: CompileFailed(Gate.COMPILE))
    assert search.generation == 0
    assert search.end == "no valid candidate to breed from"
    assert search.best() is None
    assert search.stats[0].best_us is None


def test_a_generation_cut_short_is_a_prefix_and_the_last() -> None:
    whole, cut = make(), make()
    for search in (whole, cut):
        for plan in search.ask():
            search.tell(plan.n, by_number(plan))
    assert cut.ask(limit=5) == whole.ask()[:5]
    for n in range(3, 8):
        cut.tell(n, timed(1.0))
    assert cut.end == "evaluations"


def test_places_in_a_generation_cut_short_go_to_what_was_cut_off() -> None:
    whole, cut = make(), make()
    for search in (whole, cut):
        for plan in search.ask():
            search.tell(plan.n, by_number(plan))
    plans = whole.ask()
    cut.ask(limit=5)
    assert cut.refill(2) == plans[5:7]


def test_places_of_refused_plans_are_filled_once() -> None:
    search = make(seeds=2, generations=2)
    for plan in search.ask():
        search.tell(plan.n, timed(10.0 + plan.n, f"k{plan.n}"))
    plans = search.ask()
    refills = search.refill(3)
    assert [plan.n for plan in refills] == [10, 11, 12]
    assert {plan.operator for plan in refills} == {"tune"}
    assert {plan.generation for plan in refills} == {1}
    with pytest.raises(OrderError, match="once"):
        search.refill(1)
    for plan in (*plans, *refills):
        search.tell(plan.n, timed(5.0 + plan.n, f"k{plan.n}"))
    assert search.stats[-1].judged == 11
    search.ask()
    search.tell(13, None)
    with pytest.raises(OrderError, match="between"):
        search.refill(1)


def test_refills_are_not_the_draws_they_replace() -> None:
    search = make(generations=1, operators={"tune": Share(1.0, 1)}, children=12, islands=1)
    for plan in search.ask():
        search.tell(plan.n, timed(10.0 + plan.n, f"k{plan.n}"))
    assert [plan.parents for plan in search.ask()] != [plan.parents for plan in search.refill(12)]


def test_no_refill_without_an_operator_of_one_parent() -> None:
    search = make(operators={"splice": Share(1.0, 2)})
    for plan in search.ask():
        search.tell(plan.n, timed(10.0 + plan.n, f"k{plan.n}"))
    search.ask()
    assert search.refill(5) == ()


def test_the_best_is_of_the_whole_history() -> None:
    search = make()
    drive(search, lambda plan: timed(10.0 if plan.n == 1 else 20.0 + plan.n, f"k{plan.n}"))
    best = search.best()
    assert best is not None
    assert (best.n, best.time_us) == (1, 10.0)
    assert all(stats.best_us == 10.0 for stats in search.stats)
    assert search.best_seed() == best


def test_repeated_code_is_no_member() -> None:
    search = make(seeds=2, generations=1)
    drive(search, lambda plan: timed(5.0, "one") if plan.n != 1 else timed(6.0, "two"))
    assert [standing.n for standing in search.ranking()] == [0, 1]


def test_the_hopeless_are_no_members() -> None:
    search = make(seeds=2, generations=0)
    drive(search, lambda plan: timed(5.0, f"k{plan.n}", Gate.TIMING if plan.n else Gate.TIMING_SCREEN))
    assert [standing.n for standing in search.ranking()] == [1]


def test_the_refuted_are_no_parents() -> None:
    search = make(generations=3)
    for plan in search.ask():
        search.tell(plan.n, timed(10.0 + plan.n, f"k{plan.n}"))
    search.refute(0)
    assert search.best() is not None
    assert search.best().n == 1  # type: ignore[union-attr]
    for plan in search.ask():
        assert 0 not in plan.parents + plan.inspirations
        with pytest.raises(OrderError, match="middle"):
            search.refute(1)
        search.tell(plan.n, None)
    with pytest.raises(OrderError, match="not a valid candidate"):
        search.refute(5)


def test_stagnation_narrows_to_tune_until_something_is_better() -> None:
    search = make(generations=9, stagnation=2)
    operators: dict[int, set[str]] = {}
    improved = False
    while search.end is None:
        for plan in search.ask():
            operators.setdefault(plan.generation, set()).add(plan.operator)
            improved = plan.generation == 5
            search.tell(plan.n, timed(1.0 if improved else 10.0, f"k{plan.n}"))
    assert operators[1] | operators[2] == {"tune", "splice"}
    assert operators[3] == operators[4] == operators[5] == {"tune"}
    assert operators[6] == {"tune", "splice"}
    assert operators[8] == {"tune"}


def test_every_child_has_its_own_generator() -> None:
    search = make()
    assert search.rng(3).random() == search.rng(3).random() != search.rng(4).random()
    expected = np.random.default_rng(np.random.SeedSequence([7, 3])).random()
    assert search.rng(3).random() == expected


@pytest.mark.parametrize(("name", "value"), [("seeds", 0), ("children", 0), ("islands", 0), ("operators", {})])
def test_settings_that_mean_nothing(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        make(**{name: value})


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(1, 9))
def test_any_outcomes_keep_the_rules(data: st.DataObject, islands: int, children: int) -> None:
    outcome = st.one_of(
        st.none(),
        st.just(CompileFailed(Gate.COMPILE)),
        st.builds(timed, st.floats(0.1, 1e3), st.sampled_from(["a", "b", "c", "d", "e", None])),
    )
    search = make(islands=islands, children=children)
    best: list[float] = []
    while search.end is None:
        for plan in search.ask():
            search.tell(plan.n, data.draw(outcome))
        best += [stats.best_us for stats in search.stats[-1:] if stats.best_us is not None]
    assert best == sorted(best, reverse=True)
    assert len(search.stats) == search.generation + 1


def race(seed: int, arms: dict[str, Share]) -> float:
    """Best time / optimum that 8 generations of 16 find among 6 sources with 8 params of up to 5 values each."""
    rng = np.random.default_rng([seed, 99])
    values = np.array([5, 5, 4, 4, 3, 4, 3, 2])
    base = np.array([300.0, 120.0, 60.0, 35.0, 20.0, 18.0]) * rng.uniform(0.8, 1.25, 6)
    best, slope = rng.integers(0, values, (6, 8)), rng.uniform(0.02, 0.2, (6, 8))
    search = Search(Settings(seed, 6, 8, 16, 2, arms))
    genomes: dict[int, tuple[int, tuple[int, ...]]] = {}

    def child(plan: Plan, draw: np.random.Generator) -> tuple[int, tuple[int, ...]]:
        if plan.operator == "seed":
            return plan.n, tuple(values // 2)
        if plan.operator == "random":
            return int(draw.integers(6)), tuple(draw.integers(0, values))
        source, params = genomes[plan.parents[0]]
        genome = np.array(params)
        if plan.operator == "tune":
            for place in draw.choice(8, 1 + int(draw.integers(3)), replace=False):
                genome[place] = np.clip(genome[place] + draw.choice([-1, 1]), 0, values[place] - 1)
        else:
            take = draw.random(8) < 0.5
            genome[take] = np.array(genomes[plan.parents[1]][1])[take]
        return source, tuple(genome)

    def judge(plan: Plan) -> Outcome:
        draw = search.rng(plan.n)
        tries = (child(plan, draw) for _ in range(9))
        known = set(genomes.values())
        genomes[plan.n] = next((genome for genome in tries if genome not in known), (0, tuple(values // 2)))
        source, params = genomes[plan.n]
        bowl = float((slope[source] * (np.array(params) - best[source]) ** 2).sum()) / 2
        return timed(base[source] * math.exp(bowl), str(genomes[plan.n]))

    drive(search, judge)
    found = search.best()
    assert found is not None
    return found.time_us / float(base.min())


def test_evolution_beats_chance_within_a_small_budget() -> None:
    """Same landscapes, same number of evaluations."""
    evolved = statistics.median(race(seed, SHARES) for seed in range(15))
    drawn = statistics.median(race(seed, {"random": Share(1.0, 1)}) for seed in range(15))
    assert evolved < 1.1
    assert evolved < 0.85 * drawn


def test_who_divides_the_shapes_otherwise_is_not_crowded_out() -> None:
    """Six fast kernels that one launch serves at all shapes, and a slow one that two launches share."""

    def parents_of(served: Callable[[int], object]) -> set[int]:
        search = make(seeds=1, islands=1, children=8, generations=6, operators={"tune": Share(1.0, 1)})
        bred: set[int] = set()
        while plans := search.ask() if search.end is None else ():
            for plan in plans:
                bred |= set(plan.parents) if plan.generation > 1 else set()
                # the eighth child of the first generation is slow; nobody else is of its kind
                time_us = 9.0 if plan.n == 8 else 5.0 + plan.n / 100
                search.tell(plan.n, timed(time_us, f"k{plan.n}"), served(plan.n))
        return bred

    assert 8 not in parents_of(lambda _n: ())
    assert 8 in parents_of(lambda n: "two launches" if n == 8 else "one launch")
