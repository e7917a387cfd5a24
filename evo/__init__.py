"""The search: experiments, populations, the archive, the commands."""
