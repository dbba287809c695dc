"""What Flower starts on the SuperLink's machine: the analyzer, and nothing for nodes."""
