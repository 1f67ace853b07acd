"""Further tests: five that the papers do not have, two of them of the embedding alone."""
