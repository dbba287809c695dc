"""Public choices: what a device agrees to, what the analyzer does with estimates, what a simulation makes up."""
