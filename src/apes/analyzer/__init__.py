"""The analyzer: sees only shuffled batches."""
