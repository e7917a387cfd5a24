"""Version 1: the first tables."""

from __future__ import annotations

from sqlite_utils import Database


def m001_tables(db: Database) -> None:
    """Runs, kernels, candidates, verdicts, times, logs.

    Times in microseconds (`*_us`), durations in seconds (`*_s`), moments as ISO 8601 UTC (`*_at`).
    """
    _create_runs(db)
    _create_candidates(db)
    _create_verdicts(db)
    _create_logs(db)
    db.table("kernels").enable_fts(["source"], create_triggers=True, tokenize="unicode61")
    db.table("candidates").enable_fts(["reason"], create_triggers=True, tokenize="porter")


def _create_runs(db: Database) -> None:
    text, whole = str, int
    db.table("runs").create(
        {
            "id": text,
            "name": text,
            "experiment": text,
            "rng_seed": whole,
            "device": text,
            "gpu": text,
            "arch": text,
            "clock": text,
            "version": text,
            "commit_id": text,
            "machine": text,
            "status": text,
            "started_at": text,
            "ended_at": text,
        },
        pk="id",
        not_null={"name", "experiment", "status", "started_at"},
    )
    db.table("runs").create_index(["name", "started_at"])
    db.table("kernels").create(
        {"id": text, "source": text, "params": text, "format": text}, pk="id", not_null={"source", "params"}
    )


def _create_candidates(db: Database) -> None:
    db.table("candidates").create(
        {
            "run_id": str,
            "n": int,
            "kernel_id": str,
            "generation": int,
            "island": int,
            "operator": str,
            "inspirations": str,
            "model": str,
            "reason": str,
            "created_at": str,
        },
        pk=("run_id", "n"),
        not_null={"generation", "island", "operator", "reason"},
        foreign_keys=[("run_id", "runs", "id"), ("kernel_id", "kernels", "id")],
    )
    db.table("candidates").create_index(["kernel_id"])
    db.table("parents").create(
        {"run_id": str, "n": int, "position": int, "parent_run_id": str, "parent_n": int, "role": str},
        pk=("run_id", "n", "position"),
        foreign_keys=[("run_id", "runs", "id"), ("parent_run_id", "runs", "id")],
    )
    db.table("parents").create_index(["parent_run_id", "parent_n"])


def _create_verdicts(db: Database) -> None:
    db.table("outcomes").create(
        {
            "run_id": str,
            "n": int,
            "kind": str,
            "stage": str,
            "code_key": str,
            "reused_from": int,
            "findings": str,
            "clock": str,
            "registers": int,
            "shared_bytes": int,
            "spill_bytes": int,
            "occupancy": float,
            "compile_s": float,
            "evaluate_s": float,
            "judged_at": str,
        },
        pk=("run_id", "n"),
        not_null={"kind", "stage", "findings"},
        foreign_keys=[("run_id", "runs", "id")],
    )
    db.table("outcomes").create_index(["code_key"])
    db.table("timings").create(
        {
            "run_id": str,
            "n": int,
            "subject": str,
            "position": int,
            "shape": str,
            "stage": str,
            "clock": str,
            "cold": int,
            "process": str,
            "time_us": float,
            "low_us": float,
            "high_us": float,
            "floor_us": float,
            "tflops": float,
            "gb_per_s": float,
            "limiter": str,
            "samples_us": str,
        },
        not_null={"run_id", "subject", "position", "shape", "clock", "time_us"},
        foreign_keys=[("run_id", "runs", "id")],
    )
    db.table("timings").create_index(["run_id", "n"])
    db.table("confirmations").create(
        {"run_id": str, "n": int, "verdict": str, "speedup": float, "low": float, "high": float, "evidence": str},
        pk=("run_id", "n"),
        foreign_keys=[("run_id", "runs", "id")],
    )


def _create_logs(db: Database) -> None:
    db.table("llm_calls").create(
        {
            "id": int,
            "run_id": str,
            "n": int,
            "purpose": str,
            "model": str,
            "returned_model": str,
            "request": str,
            "reply": str,
            "tokens_in": int,
            "tokens_out": int,
            "usd": float,
            "seconds": float,
            "status": str,
        },
        pk="id",
        foreign_keys=[("run_id", "runs", "id")],
    )
    db.table("llm_calls").create_index(["run_id", "n"])
    db.table("events").create(
        {"run_id": str, "at": str, "kind": str, "data": str}, foreign_keys=[("run_id", "runs", "id")]
    )
    db.table("events").create_index(["run_id", "kind"])
