"""Password hashing in separate processes, so that its load does not slow down the pages.

hashers  Django's hashers, with our parameters; they delegate
place    the bounded pool, one per process of the web tier
child    what runs in the processes of the pool
"""
