"""The shuffler as an HTTPS service, with its ledger and its policy."""
