"""User ASes, their Links and limits: regular, timed, bulk, and the defaults that are the maximum."""
