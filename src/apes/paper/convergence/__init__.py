"""How fast training converges: a proved bound, the published one, and a trial that measures it."""
