"""Personalised private federated learning in the shuffle model."""
