"""What a run leaves for people: its folder with the best kernel, the plot and a short report."""
