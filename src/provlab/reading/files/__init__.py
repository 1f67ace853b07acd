"""How weights lie in files: one module for each kind of file, and one for weights that are stored as codes."""
