"""One file per version of the archive: a function that changes the tables of the version before it."""
