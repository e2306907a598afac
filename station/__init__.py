"""Both ends of a test of a Link that sends: the attachment point's (`ap_end`) and the user's (`user_end`).

Needs the standard library and nothing else, because it is shipped with the agent, with the users' client and with the
service. Only `tools`, which the service uses, imports a rule of ours.

    tools ──> plan <── report            what is done, and what came of it
    messages, counting, pacing, guard    pure parts
    rounds                               one phase at one end
    ap_talk | user_talk                  the conversation of an end, over time, without a socket
    wire                                 sockets
    confine                              what the attachment point's child gives up
    ap_end | user_end                    the doors
"""
