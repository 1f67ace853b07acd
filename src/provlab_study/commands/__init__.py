"""The study's commands of ``provlab``: run, reproduce, claims (entry points ``provlab.commands``)."""
