"""Results as a reader meets them: text, tables, frames, pictures, JSON."""
