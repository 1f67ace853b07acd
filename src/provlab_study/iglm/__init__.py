"""Two antibody models that others trained, a larger and a smaller one of one tokenizer, compared by Model-diff."""
