"""The command lines: what a person types, and what is printed."""
