"""Many coordinates and rounds together, from above (docs/proofs.md, 7)."""
