"""The public scale of rows: the bound of an update's norm and the default step are meant for it."""

ROW_NORM = 9.0
"""L2 norm that a row of features has at most: about that of an image of 28 x 28 pixels in [0, 1]."""
