"""Version 3: views for people who read the archive with SQL or `datasette`."""

from __future__ import annotations

from sqlite_utils import Database

VIEWS = {
    "best_per_task": """
        with ranked as (
            select json_extract(r.experiment, '$.task.op') as op,
                   json_extract(r.experiment, '$.task.pattern') as pattern,
                   json_extract(r.experiment, '$.task.dtype') as dtype,
                   json_extract(r.experiment, '$.task.shapes') as shapes,
                   r.gpu, r.clock, o.run_id, o.n, c.operator, c.model, o.time_us, r.baseline_us,
                   r.baseline_us / o.time_us as speedup, f.low as speedup_low, f.high as speedup_high,
                   row_number() over (
                       partition by json_extract(r.experiment, '$.task.op'),
                                    json_extract(r.experiment, '$.task.pattern'),
                                    json_extract(r.experiment, '$.task.dtype'),
                                    json_extract(r.experiment, '$.task.shapes'), r.gpu, r.clock
                       order by o.fitness_us, o.run_id, o.n) as place
            from confirmations f
            join outcomes o on o.run_id = f.run_id and o.n = f.n
            join candidates c on c.run_id = f.run_id and c.n = f.n
            join runs r on r.id = f.run_id
            where f.verdict = 'confirmed' and o.fitness_us is not null)
        select op, pattern, dtype, shapes, gpu, clock, run_id, n, operator, model, time_us, baseline_us,
               speedup, speedup_low, speedup_high
        from ranked where place = 1
    """,
    "lineage_edges": """
        select p.run_id, p.parent_n, p.n as child_n, p.position, p.role, c.generation, c.operator, c.model,
               c.reason, a.time_us as parent_us, b.time_us as child_us, a.time_us / b.time_us as gain
        from parents p
        join candidates c on c.run_id = p.run_id and c.n = p.n
        left join outcomes a on a.run_id = p.parent_run_id and a.n = p.parent_n
        left join outcomes b on b.run_id = p.run_id and b.n = p.n
    """,
    "failures_by_stage": """
        select run_id, stage, kind, json_extract(findings, '$[0].kind') as finding,
               count(*) as candidates, min(n) as first_n
        from outcomes where fitness_us is null
        group by run_id, stage, kind, finding
    """,
    "cost_per_improvement": """
        with made as (
            select c.run_id, c.n, c.operator, c.model, o.reused_from,
                   coalesce(o.compile_s, 0) + coalesce(o.evaluate_s, 0) as judged_s,
                   o.fitness_us < min(o.fitness_us) over (
                       partition by c.run_id order by c.n rows between unbounded preceding and 1 preceding)
                   as improved
            from candidates c left join outcomes o on o.run_id = c.run_id and o.n = c.n),
        paid as (
            select run_id, n, sum(tokens_in) as tokens_in, sum(tokens_out) as tokens_out, sum(usd) as usd
            from llm_calls group by run_id, n)
        select m.run_id, m.operator, m.model, count(*) as candidates, sum(coalesce(m.improved, 0)) as improvements,
               sum(m.judged_s) as judged_s, sum(m.judged_s) / nullif(sum(m.improved), 0) as judged_s_per_improvement,
               sum(p.tokens_in) as tokens_in, sum(p.tokens_out) as tokens_out, sum(p.usd) as usd,
               sum(p.usd) / nullif(sum(m.improved), 0) as usd_per_improvement
        from made m left join paid p on p.run_id = m.run_id and p.n = m.n
        group by m.run_id, m.operator, m.model
    """,
}
"""Name -> query. Times in microseconds (`*_us`), durations in seconds (`*_s`)."""


def m003_views(db: Database) -> None:
    """Views `best_per_task`, `lineage_edges`, `failures_by_stage` and `cost_per_improvement`."""
    for name, sql in VIEWS.items():
        db.create_view(name, sql)
