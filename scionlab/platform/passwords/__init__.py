"""Password hashing, in processes of its own: what strangers make it cost is not taken from the pages.

hashers  Django's hashers, with our parameters; they send their work away
place    the bounded place that does it, one per process of the web tier
child    the program that the place starts
"""
