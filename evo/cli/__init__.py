"""Commands: one file each; `group.py` ties them together, `boundary.py` ends errors."""
