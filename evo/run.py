"""`python -m evo.run EXPERIMENT`: the main job, the same as `evo run EXPERIMENT`."""

from __future__ import annotations

from evo.cli.run import run


def main() -> None:
    """Run the `evo run` command."""
    run(prog_name="python -m evo.run")


if __name__ == "__main__":
    main()
