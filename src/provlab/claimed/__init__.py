"""What somebody says of a model, judged by the tests that there are: ``provlab check``.

A claim is one line (`kinds.toml` has the kinds, and how each is judged). `provlab.claimed.reading` takes the lines of a
file, or of a model card; `provlab.claimed.evidence` asks what the tests say of the models in them; and
`provlab.claimed.kinds` brings that to *supported*, *not refuted*, *refuted* or *not testable*.
"""
