"""What the structure of a matrix is: each module measures one side of it, strip by strip."""
