"""Long polls: polls of hosts that wait for a change (`?wait=`), thousands in one process.

`application` is in front of Django and answers 304 itself, immediately or after waiting; everything else, and each
tarball, is Django's response. A waiting poll is a coroutine without thread or database connection.

    worker         gunicorn's worker: limits connections, stops gracefully
    application    which polls are answered here
    waiting        waiting polls, one per host
    answers        responses that are not Django's
    known          state of hosts, read for many polls in one statement
    wakeup         when to check again: messages through Redis, and the clock
    threads        Django, on threads
"""
