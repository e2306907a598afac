"""Polls of hosts, and GETs of tests, that wait until there is something newer (`?wait=`), thousands in one process.

`application` stands before Django and answers 304 by itself, at once or when the time is over; everything else, and
each tarball, is Django's answer. A poll that waits is a coroutine: no thread, no connection to the database.

    worker         gunicorn's worker: who may connect, how it stops
    application    which polls are answered here, and what
    waiting        the polls that wait, one per host
    waiting_tests  GETs of a test of a Link that wait: 304 is Django's, held back here
    answers        answers that are not Django's
    known          what is known of hosts, read for many polls in one statement
    wakeup         when to look again: messages through Redis, and by the clock
    threads        Django, on threads
"""
