"""An app as an example: a note of the administrators on a Link, on its page and in REST (tests/site/test_note.py)."""
