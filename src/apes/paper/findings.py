"""What a reader of the paper should know, with the numbers."""

FINDINGS = (
    "UniS under Uniform2 is printed as 79.6 in Table 4 and as 76.9 in Table 3. 76.37 comes out (delta' = delta_c); the "
    "exact clone bound is 0.0689 a coordinate, and 76.9 would need 0.0692.",
    "The user-level column of Table 3 needs three readings of delta': delta_c for APES and UniS, 2 b delta_c for "
    "S-APES, 3.6e-5 for LDP-Min. Like for like, APES and S-APES are 57.75 and 30.39, or 49.28 and 25.67.",
    "Algorithm 2 begins by choosing the b largest coordinates of the perturbed report; Proposition 1 then counts 2 b "
    "coordinates, but the choice looks at all d. The local figure b e that goes with it is refuted: 2205 > 1570 at "
    "e = 1. Made before perturbation, the choice does leave 2 b coordinates (docs/proofs.md, 10).",
    "The text to figure 3b says that fewer dimensions are uploaded as b/d grows. Fewer are uploaded as it falls.",
    "EoN's bound is below the truth for a user with a large budget among small ones: 0.0281 against an exact 0.0395 at "
    "e = 8, 100,000 others at 0.05, delta 1e-8 (docs/published-bounds.md). In the paper's own range none was found.",
    "Theorem 3 (convergence) as printed is exceeded 8.7 times on a problem that meets its assumptions: the dimension "
    "is lost in the proof (docs/convergence.md).",
    "LDP-Min, PLDP and UniS use Laplace reports; the paper calls its figure for UniS an approximation, since shuffled "
    "Laplace reports of different budgets have no finite bound of that kind.",
)
