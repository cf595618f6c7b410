"""K1: attention seam and attention front of one layer. `launch` puts its plan together."""
