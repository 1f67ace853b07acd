"""Six models that others trained from one initial draw: the rejection, the fossil, the replay, the verdict."""
