"""User ASes, their Links and limits: regular, timed, and the defaults that are the maximum."""
