"""`evo analyze`: files in, reports, pictures and experiment files out."""
