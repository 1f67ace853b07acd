"""What an adversary can do to a model before showing it: a catalogue of attacks, exact ones proved by the logits."""
