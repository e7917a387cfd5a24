"""`evo` and `python -m evo`."""

from __future__ import annotations

from evo.cli.group import cli


def main() -> None:
    """Run the `evo` command."""
    cli(prog_name="evo")


if __name__ == "__main__":
    main()
