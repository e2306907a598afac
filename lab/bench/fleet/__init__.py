"""A simulated fleet: thousands of attachment points' agents in a few processes, at a whole service on this machine.

What an agent asks, when it asks again, whom it believes and what it takes is the agent's own code; it has no disk and
no kernel. It dies, restarts and has a wrong clock when told to. All of it is on loopback addresses and ends by itself.

    agent      one agent: its questions, and what it makes of the answers
    __main__   a process of them
    fleet      those processes together: how many agents wait, what came when
    names      the name server that says where the replicas are, as Docker's does
    site       PostgreSQL, Redis, nginx, replicas of the web tier, worker and beat
    savers     people who save all the time
    load       what happens to it all, and what agents and people met meanwhile
    data       the rows that all of it begins with
    reading    what it takes to look at the rows of those who wait
"""
