"""Other people's packages on Sluice: what imports, computes, gives gradients and trains as a graph, beside torch (README.md)."""
