"""Models that others trained, from packages of the Python index, and the figures by which models are accused."""
