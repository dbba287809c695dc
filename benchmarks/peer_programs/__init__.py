"""One round in each peer: small programs that run in the peers' own environments and print a line of JSON per round."""
