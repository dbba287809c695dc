"""Laws, levels, exact integers, searches, randomness: what every room stands on. Sees no data."""
