"""Models of others that look alike: five accusations, six models of one initial draw, two sizes of one model."""
