"""What a person reads during a run."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from evo import progress
from evo.observer import Best, BudgetLine, GenerationStats, RunInfo, RunSummary, SeedNote, ShapeRow, Stage, State
from fitness.outcome import Gate

SHAPES = ({"M": 4096, "K": 4096, "N": 16}, {"M": 4096, "K": 4096, "N": 256})
BUDGET = (
    BudgetLine("evaluations", 68, 0, 200),
    BudgetLine("minutes", 1.25, 0, 4.0),
    BudgetLine("tokens", 0, 0, None),
)
INFO = RunInfo(
    run_id="nm24-7f3a",
    name="nm24",
    rng_seed=24,
    archive="runs/archive.db",
    device="simulator",
    gpu="H200",
    arch="sm_90a",
    clock="modelled",
    shapes=SHAPES,
    floor_us=(4.5, 9.0),
    operators={"splice": 1.0, "tune": 2.0},
    model=None,
    seeds=(SeedNote("spmm/nm24_mma"), SeedNote("spmm/nm24_broken", "does not compile: line 12: expected a ;")),
    baseline="gemm/dense_mma_pipelined",
    generations=8,
    children=16,
    islands=2,
    workers=2,
    resumed=0,
    limits=BUDGET,
)
STATE = State(
    generation=3,
    generations=8,
    stage=Stage.JUDGE,
    stage_done=5,
    stage_total=16,
    planned=64,
    judged=53,
    valid=40,
    duplicates=6,
    refused=1,
    evaluations=68,
    failed={Gate.SMALL_RUN: 5, Gate.COMPILE: 2, Gate.TIMING: 0},
    best=Best(45, 12.3, 1.931, 1.214, 0.61, 2, "tune"),
    elapsed_s=61.0,
    per_minute=52.4,
    budget=BUDGET,
)
STATS = GenerationStats(3, 16, 12, 12.3, 12.5, 14.0, 40.0)
ROWS = tuple(
    ShapeRow(shape, 13.8, 9.9, 6.9, 2.0, 1.43, 4.5, 0.65, 77.0, 2500.0, "modelled", "DRAM bandwidth")
    for shape in SHAPES
)
SUMMARY = RunSummary(
    run_id="nm24-7f3a",
    name="nm24",
    status="finished",
    reason="all generations are done",
    clock="modelled",
    baseline="gemm/dense_mma_pipelined",
    best=None,
    best_timings=(),
    confirmed=True,
    confirmations=(),
    rows=ROWS,
    speedup=2.0,
    gain=1.43,
    floor_fraction=0.65,
    state=STATE,
    generations=(STATS,),
)


def console(*, terminal: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=80, force_terminal=terminal, color_system=None), text


@pytest.mark.parametrize(
    ("time_us", "text"), [(4.5312, "4.53 us"), (999.0, "999 us"), (1254.0, "1.25 ms"), (2.5e6, "2.5 s")]
)
def test_times_have_units(time_us: float, text: str) -> None:
    assert progress.time_text(time_us) == text


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("confirmed", {"n": 6, "speedup": 1.4855, "findings": []}, "confirmed #6: 1.49x baseline"),
        (
            "refuted",
            {"n": 6, "speedup": None, "findings": [{"message": "wrong at N = 33"}]},
            "refuted #6: wrong at N = 33",
        ),
        ("refuted", {"n": 6, "outcome": "TimedOut"}, "refuted #6: TimedOut"),
        (
            "seed_failed",
            {"seed": "x", "outcome": "WrongResult", "why": "zeros"},
            "seed x is not valid: WrongResult, zeros",
        ),
        ("warning", {"message": "small headroom"}, "warning: small headroom"),
        ("model_lost", {"model": "gpt-5", "tries": 3}, "model lost: model gpt-5, tries 3"),
    ],
)
def test_events_in_words(kind: str, data: dict[str, object], text: str) -> None:
    assert progress.event_line(kind, data) == text


def test_shapes_name_the_weights_first() -> None:
    assert progress.shape_text({"M": 1, "N": 2, "K": 3, "B": 4}) == "M=1 K=3 N=2 B=4"


def test_first_lines_say_device_clock_model_cap_archive_and_seeds() -> None:
    text = "\n".join(progress.start_lines(INFO, "set OPENAI_API_KEY"))
    for words in (
        "simulator of H200 (sm_90a)",
        "modelled: times come from a cost model, not a card",
        "none; set OPENAI_API_KEY",
        "132 evaluations, 2.8 min",
        "runs/archive.db",
        "spmm/nm24_broken dropped: does not compile: line 12",
        "M=4096 K=4096 N=16, floor 4.5 us",
    ):
        assert words in text


def test_a_resumed_run_and_a_model_are_named() -> None:
    info = dataclasses.replace(INFO, resumed=48, model="gpt-5")
    text = "\n".join(progress.start_lines(info, "hint"))
    assert "resumed with 48 candidates" in text
    assert "gpt-5" in text
    assert "hint" not in text


def test_live_lines_say_where_the_run_stands() -> None:
    lines = progress.state_lines(STATE, "modelled")
    assert lines[0] == "generation 3/8, judging 5/16"
    assert lines[1] == "judged 53, valid 40, duplicates 6, refused 1; failed: 2 compile, 5 small run"
    assert lines[2] == "best 12.3 us modelled (#45, tune): 1.93x baseline, 1.21x best seed, 61 % of floor"
    assert lines[3] == "52 per minute; left: 132 evaluations, 2.8 min"


def test_nothing_valid_yet() -> None:
    state = dataclasses.replace(STATE, best=None, failed={}, stage_total=0)
    stats = GenerationStats(0, 3, 0, None, None, None, None)
    assert progress.state_lines(state, "modelled")[1].endswith("failed: none")
    assert "nothing valid; best: none yet" in progress.generation_line(stats, state, "modelled")


def test_plain_progress_is_one_line_per_generation() -> None:
    out, text = console()
    watcher = progress.PlainProgress(out, "hint")
    watcher.on_start(INFO)
    before = len(text.getvalue().splitlines())
    watcher.on_stage(STATE)
    watcher.on_event("migration", {"from": 0})
    watcher.on_event("warning", {"message": "headroom is small"})
    watcher.on_generation(STATS, STATE)
    watcher.on_end(SUMMARY)
    lines = text.getvalue().splitlines()[before:]
    assert lines[0] == "warning: headroom is small"
    assert lines[1].startswith("generation 3/8: 12 of 16 valid, median 14 us; best 12.3 us modelled")
    assert lines[2] == "nm24-7f3a finished: all generations are done"
    assert len(lines) == 3
    assert "\x1b" not in text.getvalue()


def test_plain_progress_says_every_quarter_of_a_minute_what_it_is_at() -> None:
    now = 100.0
    out, text = console()
    watcher = progress.PlainProgress(out, "hint", seconds=lambda: now)
    watcher.on_start(INFO)
    before = len(text.getvalue().splitlines())
    for second in range(40):
        now = 100.0 + second
        watcher.on_stage(dataclasses.replace(STATE, judged=second))
    lines = text.getvalue().splitlines()[before:]
    assert lines == [
        f"generation 3/8, judging 5/16; judged {judged} of 64 planned, valid 40; best 12.3 us modelled (#45, tune): "
        "1.93x baseline, 1.21x best seed, 61 % of floor; 52 per minute; left: 132 evaluations, 2.8 min"
        for judged in (15, 30)
    ]


def test_live_progress_shows_the_block_and_gives_the_terminal_back() -> None:
    out, text = console(terminal=True)
    watcher = progress.LiveProgress(out, "hint")
    watcher.on_start(INFO)
    watcher.on_stage(STATE)
    assert "judging 5/16" in text.getvalue()
    watcher.on_end(SUMMARY)
    assert text.getvalue().count("\x1b[?25l") == text.getvalue().count("\x1b[?25h")  # the cursor is back
    watcher.close()


def test_live_progress_draws_a_few_times_a_second_only() -> None:
    out, text = console(terminal=True)
    watcher = progress.LiveProgress(out, "hint")
    watcher.on_start(INFO)
    for _ in range(100):
        watcher.on_stage(STATE)
    assert text.getvalue().count("judging 5/16") <= 2
    watcher.close()


def test_table_fits_a_narrow_terminal() -> None:
    out, text = console()
    out.print(progress.results_table(ROWS, SUMMARY))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    joined = "\n".join(lines)
    for words in ("M=4096 K=4096 N=256", "13.8", "2.00x", "1.43x", "65 %", "geometric mean", "modelled"):
        assert words in joined
    assert "…" not in joined
