"""The three parties as programs of their own: vaults, shuffler and analyzer, on Flower (extra ``flower``)."""
