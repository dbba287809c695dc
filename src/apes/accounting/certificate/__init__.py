"""The certified curve of one coordinate of one round (docs/proofs.md, 1 to 6)."""
