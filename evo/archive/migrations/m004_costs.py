"""Version 4: the view `cost_per_improvement` counts what models cost as the reports do.

Before, dollars of a price nobody knows counted as none, what belongs to no candidate (the planner) was left out,
and so was the model of a child that was refused.
"""

from __future__ import annotations

from sqlite_utils import Database

COST_PER_IMPROVEMENT = """
    with paid as (
        select l.run_id, l.n, l.model, max(l.id) as latest,
               sum(coalesce(l.tokens_in, 0)) as tokens_in, sum(coalesce(l.tokens_out, 0)) as tokens_out,
               case when sum(l.returned_model is not null and l.usd is null) = 0
                    then sum(coalesce(l.usd, 0.0)) end as usd,
               sum(l.returned_model is not null and l.usd is null) as unpriced
        from llm_calls l where coalesce(l.purpose, '') not like 'tool:%' group by l.run_id, l.n),
    own as (select run_id, n, iif(reused_from is null, fitness_us, null) as fitness_us,
                   coalesce(compile_s, 0) + coalesce(evaluate_s, 0) as judged_s from outcomes),
    made as (
        select c.run_id, c.n, c.operator, coalesce(c.model, p.model) as model, coalesce(o.judged_s, 0.0) as judged_s,
               coalesce(o.fitness_us < min(o.fitness_us) over (
                   partition by c.run_id order by c.n rows between unbounded preceding and 1 preceding), 0)
               as improved, 1 as candidates, coalesce(p.tokens_in, 0) as tokens_in,
               coalesce(p.tokens_out, 0) as tokens_out, p.usd, coalesce(p.unpriced, 0) as unpriced
        from candidates c
        left join own o on o.run_id = c.run_id and o.n = c.n
        left join paid p on p.run_id = c.run_id and p.n = c.n
        union all
        select l.run_id, null, 'planner', l.model, 0.0, 0, 0, coalesce(l.tokens_in, 0), coalesce(l.tokens_out, 0),
               l.usd, l.returned_model is not null and l.usd is null
        from llm_calls l
        where coalesce(l.purpose, '') not like 'tool:%'
        and not exists (select 1 from candidates c where c.run_id = l.run_id and c.n = l.n))
    select run_id, operator, model, sum(candidates) as candidates, sum(improved) as improvements,
           sum(judged_s) as judged_s, sum(judged_s) / nullif(sum(improved), 0) as judged_s_per_improvement,
           sum(tokens_in) as tokens_in, sum(tokens_out) as tokens_out,
           case when sum(unpriced) = 0 then coalesce(sum(usd), 0.0) end as usd,
           case when sum(unpriced) = 0 then coalesce(sum(usd), 0.0) / nullif(sum(improved), 0) end
               as usd_per_improvement
    from made group by run_id, operator, model
"""
"""A row per operator and model. The model of a refused child is the one asked last; "planner" has what no child has.

An improvement is faster than every valid candidate before it; the first valid one of a run is none. Dollars are null
where a price is not known. What tools did costs nothing and is left out.
"""


def m004_costs(db: Database) -> None:
    """View `cost_per_improvement`, anew."""
    db.create_view("cost_per_improvement", COST_PER_IMPROVEMENT, replace=True)
