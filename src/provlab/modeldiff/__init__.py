"""Where two language models disagree: the method of "Model-diff", with exact ground truth where a space is small."""
