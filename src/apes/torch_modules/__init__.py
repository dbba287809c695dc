"""What is common to torch modules that are trained and those that are frozen; needs the extra ``torch``."""
